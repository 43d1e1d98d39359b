// A disk that is full and a file that may not grow, as the system itself has them.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reliability/cpp/judge.hpp"
#include "reliability/cpp/runner.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

/// A script whose calls may fail by name, on real files; then what there is, when they do not fail any more.
class LimitCase {
 public:
  LimitCase(std::uint64_t seed, const SubjectOptions& options)
      : script_(make_script(seed, {.openings = 2, .writes = 10, .largest = 300 << 10})), options_(options) {
    script_.made.push_back({"adjoint", 1'000'000, 0, 100'000});
  }

  Verdict run(const std::function<void()>& mend) {
    const auto files = std::make_shared<os::PosixFiles>();
    Runner runner{script_, files, options_, [this](const Event& event) { tell(event); }};
    runner.failed = [this](const Step&, const Error& error) {
      verdict_.outcome = std::max(verdict_.outcome, Outcome::clear_error);
      if (error.code == Errc::ok || error.message.empty()) verdict_.violations.push_back("an error without a name");
    };
    runner.at_end = [&](Subject* store) {
      mend();
      if (store == nullptr) return;
      const std::size_t made = script_.made.size() - 1;
      const Made& one = script_.made[made];
      tell({Event::Kind::begun, made});
      auto done = store->write(one, script_.contents(one));
      if (done) done = store->wait(one.history, one.version);
      if (done) return tell({Event::Kind::durable, made});
      verdict_.violations.push_back("it does not go on when there is room: " + done.error().message);
    };
    runner.run();
    check();
    return verdict_;
  }

  /// What there is, for a process that comes later.
  void check() {
    for (const bool readonly : {true, false}) {
      SubjectOptions options = options_;
      options.readonly = readonly;
      auto store = open_subject(std::make_shared<os::PosixFiles>(), options);
      if (!store) {
        if (store.error().code == Errc::not_a_store && readonly && events_.empty()) continue;  // it never became one
        verdict_.violations.push_back("it cannot be opened: " + store.error().message);
        continue;
      }
      const Verdict found = judge(script_, events_, look(**store, script_.histories()));
      verdict_.outcome = std::max(verdict_.outcome, found.outcome);
      verdict_.violations.insert(verdict_.violations.end(), found.violations.begin(), found.violations.end());
    }
  }

  Script& script() { return script_; }
  std::vector<Event>& events() { return events_; }
  Verdict& verdict() { return verdict_; }

 private:
  void tell(const Event& event) {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
  }

  Script script_;
  const SubjectOptions options_;
  std::mutex mutex_;
  std::vector<Event> events_;
  Verdict verdict_;
};

void note_limit(Report& report, const std::string& by, const Verdict& verdict) {
  report.count(verdict.outcome);
  report.count_by(by);
  for (const std::string& what : verdict.violations) report.violation(report.current() + ": " + what);
}

// In a name space of mounts of this process's own, so that nothing of it stays whatever happens.
void try_tmpfs(const TrialOptions& options, std::uint64_t cases, Report& report) {
  const std::filesystem::path at = options.directory / "tmpfs";
  std::filesystem::create_directory(at);
  const bool own = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    const std::uint64_t bytes = (i + 1) * 160 << 10;
    report.begin("a tmpfs of " + std::to_string(bytes) + " bytes");
    const auto size = [](std::uint64_t many) { return "size=" + std::to_string(many); };
    if (!own || ::mount("none", at.c_str(), "tmpfs", 0, size(bytes).c_str()) != 0) {
      report.say(report.current() + ": it cannot be mounted: " + std::strerror(errno));
      report.count_by("skipped: a small tmpfs");
      return;
    }
    SubjectOptions subject;
    subject.layer = i % 2 ? Layer::store : Layer::storage;
    subject.directory = at / "store";
    subject.synced = false;  // in memory nothing is on stable storage
    subject.direct = false;
    const Verdict verdict = LimitCase(options.seed * 1000 + i, subject).run([&] {
      if (::mount("none", at.c_str(), "tmpfs", MS_REMOUNT, size(64 << 20).c_str()) != 0)
        report.violation("it cannot be made larger");
    });
    note_limit(report, "a small tmpfs", verdict);
    ::umount2(at.c_str(), MNT_DETACH);
  }
}

void set_limit(std::uint64_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

// The signal is ignored: calls fail with EFBIG.
void try_limit(const TrialOptions& options, std::uint64_t i, Report& report) {
  const std::uint64_t bytes = i * 96 << 10;
  report.begin("files of " + std::to_string(bytes) + " bytes at most");
  SubjectOptions subject;
  subject.layer = i % 2 ? Layer::store : Layer::storage;
  subject.ring = i % 3 == 0;
  subject.directory = options.directory / ("limit-" + std::to_string(i));
  std::signal(SIGXFSZ, SIG_IGN);
  set_limit(bytes);
  const Verdict verdict = LimitCase(options.seed * 1000 + i, subject).run([] { set_limit(RLIM_INFINITY); });
  set_limit(RLIM_INFINITY);
  std::signal(SIGXFSZ, SIG_DFL);
  note_limit(report, "RLIMIT_FSIZE, the signal ignored", verdict);
  std::filesystem::remove_all(subject.directory);
}

// It is not ignored, and ends the process: what was reported durable is there.
void try_signal(const TrialOptions& options, std::uint64_t i, Report& report) {
  report.begin("SIGXFSZ, " + std::to_string(i));
  SubjectOptions subject;
  subject.layer = i % 2 ? Layer::store : Layer::storage;
  subject.directory = options.directory / ("signal-" + std::to_string(i));
  LimitCase after(options.seed * 1000 + i, subject);
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe can be made");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto tell = [&](const Event& event) {
      const std::string line = text_of(event) + "\n";
      if (::write(ends[1], line.data(), line.size()) < 0) ::_exit(2);
      if (event.kind == Event::Kind::durable && event.made >= 3) set_limit(i % 2 ? 8 << 10 : 0);  // in the midst of it
    };
    Runner runner{after.script(), std::make_shared<os::PosixFiles>(), subject, tell};
    runner.failed = [](const Step&, const Error&) {};
    runner.run();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char some[4096];
  for (ssize_t got; (got = ::read(ends[0], some, sizeof some)) > 0;) text.append(some, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  for (std::size_t from = 0, line; (line = text.find('\n', from)) != std::string::npos; from = line + 1) {
    after.events().push_back(event_of(text.substr(from, line - from)));
  }
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGXFSZ) {
    after.verdict().violations.push_back("the signal did not come: status " + std::to_string(status));
  }
  after.check();
  note_limit(report, "RLIMIT_FSIZE, ended by SIGXFSZ", after.verdict());
  std::filesystem::remove_all(subject.directory);
}

}  // namespace

void run_limits(const TrialOptions& options, Report& report) {
  const std::uint64_t count = options.count ? options.count : options.short_form ? 6 : 60;
  for (std::uint64_t i = 0; i < count / 3; ++i) try_limit(options, i, report);
  for (std::uint64_t i = 0; i < count / 3; ++i) try_signal(options, i, report);
  try_tmpfs(options, count - count / 3 * 2, report);
}

}  // namespace ebb::trials
