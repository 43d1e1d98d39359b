// A process is killed; the next one finds all that was reported durable.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <random>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "reliability/cpp/judge.hpp"
#include "reliability/cpp/killer_files.hpp"
#include "reliability/cpp/runner.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::pair<FileCall, const char*>, 19> kCalls{{{FileCall::open, "open"},
                                                                   {FileCall::close, "close"},
                                                                   {FileCall::read, "read"},
                                                                   {FileCall::write, "write"},
                                                                   {FileCall::truncate, "truncate"},
                                                                   {FileCall::preallocate, "preallocate"},
                                                                   {FileCall::punch, "punch"},
                                                                   {FileCall::sync, "sync"},
                                                                   {FileCall::sync_directory, "sync_directory"},
                                                                   {FileCall::make_directory, "make_directory"},
                                                                   {FileCall::rename, "rename"},
                                                                   {FileCall::remove, "remove"},
                                                                   {FileCall::list, "list"},
                                                                   {FileCall::status, "status"},
                                                                   {FileCall::lock, "lock"},
                                                                   {FileCall::drop_cached, "drop_cached"},
                                                                   {FileCall::next_data, "next_data"},
                                                                   {FileCall::describe, "describe"},
                                                                   {FileCall::open_ring, "open_ring"}}};
static_assert(kCalls.size() == doubles::kFileCalls, "a process is killed at every kind of call");

constexpr int kCannot = 3;  // how a child ends that was not killed and failed

struct Life {
  std::uint64_t seed = 0;
  bool synced = true;
  bool ring = false;      // the transfers are not seen one by one
  bool shared = false;    // there is a shared directory
  bool waits = true;      // closing waits for it
  bool unclosed = false;  // each opening finds what one that was killed would leave
  Layer layer = Layer::store;
  Killing killing;
  std::filesystem::path directory;

  Script script() const { return make_script(seed, {.openings = 3, .writes = 5, .largest = 150'000}); }
  SubjectOptions options() const {
    SubjectOptions out;
    out.layer = layer;
    out.directory = shared ? directory / "local" : directory;
    out.synced = synced;
    if (shared) {
      out.shared = directory / "shared";
      out.waits_below = waits;
      out.capacity = 2 << 20;  // a cache of the shared directory
    }
    out.ring = true;  // KillerFiles refuse it, and then it is done by threads
    return out;
  }
};

std::vector<std::string> arguments_of(const Life& life, int pipe) {
  return {std::to_string(pipe),
          std::to_string(life.seed),
          std::to_string(life.synced),
          std::to_string(life.ring),
          std::to_string(life.unclosed),
          std::to_string(static_cast<int>(life.layer)),
          std::to_string(static_cast<int>(life.killing.when)),
          std::to_string(static_cast<int>(life.killing.call)),
          std::to_string(life.killing.nth),
          std::to_string(life.shared),
          std::to_string(life.waits),
          life.directory.string()};
}

/// A child under way: what it says, until it ends.
class Child {
 public:
  Child(const std::string& program, const Life& life) {
    if (life.shared) std::filesystem::create_directories(life.directory);  // of both
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe can be made");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no process can be started");
    if (pid_ == 0) {
      ::close(ends[0]);
      std::vector<std::string> words{program, "kills-child"};
      for (std::string& word : arguments_of(life, ends[1])) words.push_back(std::move(word));
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::execv(program.c_str(), pointers.data());
      ::_exit(kCannot);
    }
    ::close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) end(std::chrono::milliseconds(0));
    ::close(from_);
  }
  Child(const Child&) = delete;

  /// All that it said until it ended, was killed after `limit`, or (false) hung.
  void end(std::optional<std::chrono::nanoseconds> limit) {
    // Without a limit, second by second: a machine that stood still for a while makes nothing hang.
    constexpr int kSeconds = 50;
    const auto until = Clock::now() + limit.value_or(std::chrono::seconds(0));
    for (int still = 0;;) {
      const std::chrono::nanoseconds left = limit ? until - Clock::now() : std::chrono::seconds(1);
      const auto nanoseconds = std::max<std::int64_t>(left.count(), 0);
      const timespec wait{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
      pollfd waited{from_, POLLIN, 0};
      const int ready = ::ppoll(&waited, 1, &wait, nullptr);
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0 && !limit && ++still < kSeconds) continue;
      if (ready == 0) {
        ::kill(pid_, SIGKILL);
        hung = !limit;
        break;
      }
      if (!hear()) break;
    }
    while (hear()) {
    }
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }

  std::vector<Event> events() const {
    std::vector<Event> out;
    std::size_t from = 0;
    for (std::size_t line; (line = text_.find('\n', from)) != std::string::npos; from = line + 1) {
      const std::string one = text_.substr(from, line - from);
      if (!one.starts_with("calls")) out.push_back(event_of(one));
    }
    return out;
  }
  /// Of one that was not killed: how many calls of each kind it made.
  std::array<std::uint64_t, doubles::kFileCalls> calls() const {
    std::array<std::uint64_t, doubles::kFileCalls> out{};
    std::size_t at = text_.find("calls");
    if (at == std::string::npos) throw std::runtime_error("a child that was not to be killed did not end well");
    at += 5;
    for (std::uint64_t& one : out) {
      std::size_t used = 0;
      one = std::stoull(text_.substr(at), &used);
      at += used;
    }
    return out;
  }

  int status = 0;
  bool hung = false;

 private:
  bool hear() {
    char some[4096];
    const ssize_t got = ::read(from_, some, sizeof some);
    if (got > 0) text_.append(some, static_cast<std::size_t>(got));
    return got > 0;
  }

  pid_t pid_ = -1;
  int from_ = -1;
  std::string text_;
};

struct Trier {
  const TrialOptions& options;
  Report& report;
  std::uint64_t made = 0;

  Life life(std::uint64_t seed, std::mt19937_64& random) {
    Life out;
    out.seed = seed;
    out.synced = random() % 4 != 0;
    out.unclosed = random() % 2;
    out.shared = options.shared;
    if (out.shared) {
      out.waits = out.synced;
      out.synced = true;
    }
    out.layer = out.shared          ? Layer::store
                : options.snapshots ? Layer::snapshots
                : random() % 2      ? Layer::store
                                    : Layer::storage;
    out.directory = options.directory / std::to_string(made++);
    return out;
  }

  // What the next process meets. False: the child was not killed after all.
  bool judge_end(const Life& life, Child& child, const std::string& where) {
    if (child.hung) {
      report.count(Outcome::hang);
      report.violation(where + ": it hung");
      return true;
    }
    if (!WIFSIGNALED(child.status) || WTERMSIG(child.status) != SIGKILL) {
      if (WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0) return false;
      report.count(Outcome::crash);
      report.violation(where + ": it ended by itself, with status " + std::to_string(child.status));
      return true;
    }
    const std::vector<Event> events = child.events();
    const Verdict verdict = life.shared ? judge_both(life, events) : judge_one(life, events);
    report.count(verdict.outcome);
    for (const std::string& what : verdict.violations) report.violation(where + ": " + what);
    return true;
  }

  // As those who read, and then the next process, meet it.
  Verdict judge_one(const Life& life, const std::vector<Event>& events) {
    Verdict verdict;
    for (const bool readonly : {true, false}) add(verdict, life, events, life.options(), readonly, {});
    return verdict;
  }

  // The same of two directories. For every other one the local directory is lost with its node; what was not sent is
  // sent by the next process that has both.
  Verdict judge_both(const Life& life, const std::vector<Event>& events) {
    Verdict verdict;
    SubjectOptions elsewhere = life.options();
    elsewhere.directory = elsewhere.shared;
    elsewhere.shared.clear();
    const Rules sent{.sent_alone = true};
    add(verdict, life, events, life.options(), true, {});
    add(verdict, life, events, elsewhere, true, sent);
    const bool lost = made % 2 == 0;
    if (lost) std::filesystem::remove_all(life.options().directory);
    report.count_by(lost ? "the local directory is lost" : "both directories are there");
    add(verdict, life, events, life.options(), false, lost ? sent : Rules{});
    if (life.waits || lost) add(verdict, life, events, elsewhere, true, lost ? sent : Rules{});
    return verdict;
  }

  void add(Verdict& verdict, const Life& life, const std::vector<Event>& events, SubjectOptions subject, bool readonly,
           const Rules& rules) {
    const Script script = life.script();
    subject.readonly = readonly;
    const std::string as = (subject.directory == life.options().directory ? "" : "the shared directory alone, ") +
                           std::string(readonly ? "read only: " : "to be written: ");
    auto store = open_subject(std::make_shared<os::PosixFiles>(), subject);
    if (!store) {
      const bool none = readonly && store.error().code == Errc::not_a_store && events.empty();
      if (!none) verdict.violations.push_back(as + "it cannot be opened: " + store.error().message);
      return;
    }
    const Verdict found = judge(script, events, look(**store, script.histories()), rules);
    verdict.outcome = std::max(verdict.outcome, found.outcome);
    for (const std::string& what : found.violations) verdict.violations.push_back(as + what + (*store)->said());
    if (const auto closed = (*store)->close(); !closed)
      verdict.violations.push_back(as + "closing it: " + closed.error().message);
  }

  std::array<std::uint64_t, doubles::kFileCalls> count_calls(Life life) {
    life.killing.nth = 0;
    life.directory.concat("-dry");
    Child child(options.program, life);
    child.end({});
    clear(life);
    return child.calls();
  }
  static void clear(const Life& life) { std::filesystem::remove_all(life.directory); }
};

std::string told(const Life& life, const std::string& how) {
  return std::string(name_of(life.layer)) +
         (!life.synced                ? ", process"
          : life.shared && life.waits ? ", shared"
                                      : ", storage") +
         ", script " + std::to_string(life.seed) + (life.unclosed ? ", as if killed before" : "") + ", killed " + how;
}

void kill_at_calls(Trier& with, std::uint64_t each, std::mt19937_64& random) {
  static constexpr std::array<const char*, 3> kWhen{"before ", "within ", "after "};
  for (const auto& [call, name] : kCalls) {
    for (std::uint64_t i = 0; i < each;) {
      Life life = with.life(random(), random);
      with.report.begin("counting calls, script " + std::to_string(life.seed));
      const std::uint64_t calls = with.count_calls(life)[static_cast<std::size_t>(call)];
      // Several of one script, whose calls are counted once.
      for (int more = 0; more < 5 && i < each && calls > 0; ++more) {
        const bool parts = call == FileCall::write || call == FileCall::punch;
        life.killing = {static_cast<Killing::When>(parts ? random() % 3 : random() % 2 * 2), call,
                        1 + random() % calls};
        life.directory = with.options.directory / std::to_string(with.made++);
        const std::string where = told(life, kWhen[static_cast<std::size_t>(life.killing.when)] + std::string(name) +
                                                 " " + std::to_string(life.killing.nth));
        with.report.begin(where);
        Child child(with.options.program, life);
        child.end({});
        if (with.judge_end(life, child, where)) {
          with.report.count_by(name);
          ++i;
        }
        Trier::clear(life);
      }
    }
  }
}

void kill_at_random(Trier& with, std::uint64_t many, std::mt19937_64& random) {
  for (std::uint64_t i = 0; i < many;) {
    Life life = with.life(random(), random);
    life.ring = random() % 2;
    with.report.begin("measuring, script " + std::to_string(life.seed));
    const auto start = Clock::now();
    static_cast<void>(with.count_calls(life));
    const auto whole = Clock::now() - start;
    for (int more = 0; more < 5 && i < many; ++more) {
      const auto moment =
          std::chrono::nanoseconds(random() % static_cast<std::uint64_t>(std::chrono::nanoseconds(whole).count()));
      life.directory = with.options.directory / std::to_string(with.made++);
      const std::string where = told(life, "after " + std::to_string(moment.count() / 1000) + " us");
      with.report.begin(where);
      Child child(with.options.program, life);
      child.end(moment);
      if (with.judge_end(life, child, where)) {
        with.report.count_by("a random moment");
        const auto said = child.events();
        const auto durable = [](const Event& event) {
          return event.kind == Event::Kind::durable || event.kind == Event::Kind::sent;
        };
        if (std::ranges::any_of(said, durable)) with.report.count_by("a random moment, after something was reported");
        ++i;
      }
      Trier::clear(life);
    }
  }
}

}  // namespace

void run_kills(const TrialOptions& options, Report& report) {
  // So many at random moments, and beside them at each kind of call.
  const std::uint64_t count = options.count ? options.count : !options.short_form ? 1000 : options.snapshots ? 5 : 25;
  std::mt19937_64 random(options.seed);
  Trier with{options, report};
  kill_at_calls(with, std::max<std::uint64_t>(1, count / 50), random);
  kill_at_random(with, count, random);
}

int run_kills_child(const std::vector<std::string>& arguments) {
  const int to = std::stoi(arguments.at(0));
  Life life;
  life.seed = std::stoull(arguments.at(1));
  life.synced = arguments.at(2) == "1";
  life.ring = arguments.at(3) == "1";
  life.unclosed = arguments.at(4) == "1";
  life.layer = static_cast<Layer>(std::stoi(arguments.at(5)));
  life.killing = {static_cast<Killing::When>(std::stoi(arguments.at(6))),
                  static_cast<FileCall>(std::stoi(arguments.at(7))), std::stoull(arguments.at(8))};
  life.shared = arguments.at(9) == "1";
  life.waits = arguments.at(10) == "1";
  life.directory = arguments.at(11);
  const auto say = [to](const std::string& text) {  // whole lines: short writes to a pipe are
    if (::write(to, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(kCannot);
  };
  const Script script = life.script();
  std::shared_ptr<os::Files> files;
  const auto killer = std::make_shared<KillerFiles>(life.killing);
  if (life.ring)
    files = std::make_shared<os::PosixFiles>();
  else
    files = killer;
  Runner runner{script, files, life.options(), [&](const Event& event) { say(text_of(event).append("\n")); }};
  if (life.unclosed) {
    runner.before_open = [&life](std::size_t) {
      os::PosixFiles plain;
      make_unclosed(plain, life.options().directory);
      if (life.shared) make_unclosed(plain, life.options().shared);
    };
  }
  runner.run();
  std::string calls = "calls";
  for (std::size_t i = 0; i < doubles::kFileCalls; ++i)
    calls.append(" ").append(std::to_string(killer->calls(static_cast<FileCall>(i))));
  say(calls.append("\n"));
  return 0;
}

}  // namespace ebb::trials
