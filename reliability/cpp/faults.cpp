// One call of the file system fails: the n-th of its kind, for every n of every kind.
#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "reliability/cpp/judge.hpp"
#include "reliability/cpp/runner.hpp"
#include "reliability/cpp/trial.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/memory_files.hpp"

namespace ebb::trials {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;
using doubles::MemoryFiles;

struct Fault {
  FileCall call;
  const char* name;
  int error;  // 0: a short transfer
  std::uint64_t times = 1;
};

constexpr std::uint64_t kEver = FaultyFiles::kEver;
constexpr std::array<Fault, 39> kFaults{{
    {FileCall::open, "open EIO", EIO},
    {FileCall::open, "open EMFILE", EMFILE},
    {FileCall::open, "open ENOSPC, for good", ENOSPC, kEver},
    {FileCall::close, "close EIO", EIO},
    {FileCall::read, "read EIO", EIO},
    {FileCall::read, "read short", 0},
    {FileCall::read, "read EINTR", EINTR},
    {FileCall::read, "read EIO, for good", EIO, kEver},
    {FileCall::write, "write ENOSPC", ENOSPC},
    {FileCall::write, "write EIO", EIO},
    {FileCall::write, "write short", 0},
    {FileCall::write, "write EINTR", EINTR},
    {FileCall::write, "write ENOSPC, for good", ENOSPC, kEver},
    {FileCall::write, "write EIO, for good", EIO, kEver},
    {FileCall::truncate, "truncate EIO", EIO},
    {FileCall::preallocate, "preallocate ENOSPC", ENOSPC},
    {FileCall::preallocate, "preallocate EOPNOTSUPP", EOPNOTSUPP, kEver},
    {FileCall::preallocate, "preallocate EIO", EIO},
    {FileCall::preallocate, "preallocate ENOSPC, for good", ENOSPC, kEver},
    {FileCall::punch, "punch EOPNOTSUPP, for good", EOPNOTSUPP, kEver},
    {FileCall::punch, "punch EIO", EIO},
    {FileCall::describe, "describe EIO", EIO},
    {FileCall::open_ring, "open_ring ENOSYS", ENOSYS},
    {FileCall::drop_cached, "drop_cached EIO", EIO},
    {FileCall::drop_cached, "drop_cached EIO, for good", EIO, kEver},
    {FileCall::drop_cached, "drop_cached ENOSYS, for good", ENOSYS, kEver},
    {FileCall::next_data, "next_data EIO", EIO},
    {FileCall::next_data, "next_data EINVAL, for good", EINVAL, kEver},
    {FileCall::sync, "sync EIO", EIO},
    {FileCall::sync, "sync ENOSPC", ENOSPC},
    {FileCall::sync, "sync EIO, for good", EIO, kEver},
    {FileCall::sync_directory, "sync of a directory EIO", EIO},
    {FileCall::make_directory, "mkdir EACCES", EACCES},
    {FileCall::rename, "rename EIO", EIO},
    {FileCall::remove, "remove EIO", EIO},
    {FileCall::list, "list EIO", EIO},
    {FileCall::status, "status EIO", EIO},
    {FileCall::lock, "lock EWOULDBLOCK", EWOULDBLOCK},
    {FileCall::lock, "lock EIO", EIO},
}};

/// One run of a script, with one fault.
class FaultCase {
 public:
  /// `for_good`: a drop may fail as often as it is tried, and then what was dropped is there again.
  FaultCase(const Script& script, Layer layer, bool for_good) : script_(script), rules_{.final_drops = !for_good} {
    options_.layer = layer;
    options_.ring = true;  // there is none: it is done by threads
    script_.made.push_back({"adjoint", 1'000'000, 0, 20'000});
    script_.made.push_back({"adjoint", 1'000'001, 0, 20'000});
  }

  FaultyFiles& files() { return *files_; }
  MemoryFiles& disk() { return disk_; }

  // With what is told to fail; `mend` ends that.
  Verdict run(const std::function<void()>& mend) {
    Runner runner{script_, files_, options_, [this](const Event& event) { tell(event); }};
    runner.failed = [this](const Step&, const Error& error) { failed(error); };
    runner.before_open = [this](std::size_t openings) {
      if (openings % 2 == 1) make_unclosed(disk_, options_.directory);
    };
    runner.at_end = [&](Subject* store) {
      mend();
      if (store != nullptr)
        goes_on(*store, script_.made.size() - 2, "it does not go on when the fault is gone: ", true);
    };
    runner.run();
    auto store = open_subject(files_, options_);
    if (!store) return wrong("it cannot be opened when the fault is gone: " + store.error().message), verdict_;
    check(**store, "");
    tell({Event::Kind::opened, 0});
    goes_on(**store, script_.made.size() - 1, "the next process cannot write: ");
    if (const auto closed = (*store)->close(); !closed)
      wrong("the next process cannot close: " + closed.error().message);
    store->reset();
    SubjectOptions reading = options_;
    reading.readonly = true;
    store = open_subject(files_, reading);
    if (!store) return wrong("it cannot be opened again: " + store.error().message), verdict_;
    check(**store, "in the end: ");
    store->reset();
    if (disk_.open_files() > 0) wrong("files stay open");
    return verdict_;
  }

 private:
  void tell(const Event& event) {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  void wrong(const std::string& what, Outcome outcome = Outcome::clear_error) {
    verdict_.outcome = std::max(verdict_.outcome, outcome);
    verdict_.violations.push_back(what);
  }
  void failed(const Error& error) {
    verdict_.outcome = std::max(verdict_.outcome, Outcome::clear_error);
    if (error.code == Errc::ok || error.message.empty()) wrong("an error without a name");
  }
  // `again`: a second attempt counts. Small ones are written after their puts have ended, so that write may be failing
  // now, and what was begun meanwhile in its segment fails with it.
  void goes_on(Subject& store, std::size_t made, const std::string& what, bool again = false) {
    const Made& one = script_.made[made];
    tell({Event::Kind::begun, made});
    const auto attempt = [&] {
      const auto written = store.write(one, script_.contents(one));
      return written ? store.wait(one.history, one.version) : written;
    };
    auto done = attempt();
    if (!done && again) {
      static_cast<void>(store.drop(one.history, one.version));
      done = attempt();
    }
    if (done) return tell({Event::Kind::durable, made});
    wrong(what + done.error().message);
  }
  void check(Subject& store, const char* where) {
    std::vector<Event> events;
    {
      std::lock_guard lock(mutex_);
      events = events_;
    }
    const Verdict found = judge(script_, events, look(store, script_.histories()), rules_);
    for (const std::string& what : found.violations) wrong(where + what, found.outcome);
  }

  Script script_;
  const Rules rules_;
  SubjectOptions options_;
  MemoryFiles disk_;
  std::shared_ptr<FaultyFiles> files_ = std::make_shared<FaultyFiles>(disk_, 1);
  std::mutex mutex_;
  std::vector<Event> events_;
  Verdict verdict_;
};

void note(Report& report, const std::string& where, const std::string& by, const Verdict& verdict) {
  report.count(verdict.outcome);
  report.count_by(by);
  for (const std::string& what : verdict.violations) report.violation(where + ": " + what);
}

void try_calls(const Script& script, Layer layer, std::uint64_t step, Report& report) {
  std::array<std::uint64_t, doubles::kFileCalls> calls{};
  {
    report.begin("counting the calls");
    FaultCase dry(script, layer, false);
    std::array<std::uint64_t, doubles::kFileCalls> at_end{};
    note(report, report.current(), "no fault", dry.run([&] {
      for (std::size_t i = 0; i < at_end.size(); ++i) at_end[i] = dry.files().count(static_cast<FileCall>(i));
    }));
    calls = at_end;
  }
  std::uint64_t offset = 0;
  for (const Fault& fault : kFaults) {
    const std::uint64_t last = calls[static_cast<std::size_t>(fault.call)];
    for (std::uint64_t n = 1 + offset++ % std::min(step, std::max<std::uint64_t>(1, last)); n <= last; n += step) {
      const std::string where = std::string(name_of(layer)) + ", script " + std::to_string(script.seed) + ", " +
                                fault.name + ", call " + std::to_string(n) + " of " + std::to_string(last);
      report.begin(where);
      FaultCase one(script, layer, fault.times > 1);
      if (fault.error)
        one.files().fail_nth(fault.call, n, fault.error, fault.times);
      else
        one.files().shorten_nth(fault.call, n);
      note(report, where, fault.name, one.run([&] { one.files().clear_faults(); }));
    }
  }
}

// A disk that is full from some moment on, and has room again in the end.
void try_full(const Script& script, Layer layer, std::uint64_t step, Report& report) {
  for (std::uint64_t room = 0; room < 3u << 20; room += step) {
    const std::string where = std::string(name_of(layer)) + ", a disk of " + std::to_string(room) + " bytes";
    report.begin(where);
    FaultCase one(script, layer, true);
    one.disk().set_capacity(room);
    note(report, where, "a full disk", one.run([&] { one.disk().set_capacity(MemoryFiles::kUnlimited); }));
  }
}

}  // namespace

void run_faults(const TrialOptions& options, Report& report) {
  const std::uint64_t scripts = options.short_form ? 1 : std::max<std::uint64_t>(1, options.count ? options.count : 2);
  for (std::uint64_t i = 0; i < scripts; ++i) {
    const Script script = make_script(options.seed * 1000 + i, {.openings = options.short_form ? std::size_t{2} : 3,
                                                                .writes = options.short_form ? std::size_t{4} : 7,
                                                                .largest = 150'000});
    for (const Layer layer : {Layer::storage, Layer::store}) {
      try_calls(script, layer, options.short_form ? 7 : 1, report);
      try_full(script, layer, options.short_form ? 700'000 : 40'960, report);
    }
  }
}

}  // namespace ebb::trials
