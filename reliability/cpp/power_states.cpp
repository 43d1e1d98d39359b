#include "reliability/cpp/power_states.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>

#include "reliability/cpp/runner.hpp"
#include "reliability/cpp/sites.hpp"
#include "storage/admin/collect.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::trials {
namespace {

using doubles::Change;

constexpr Version kExtra = 1'000'000, kNext = kExtra - 1;

bool is_there(const std::vector<Event>& events) {
  return std::ranges::any_of(events, [](const Event& event) { return event.kind == Event::Kind::opened; });
}

// Where the next process writes.
std::string next_history(const SubjectOptions& options) { return options.layer == Layer::snapshots ? "" : "adjoint"; }

// Which writing of it this is.
std::optional<std::size_t> made_of(const Script& script, const std::string& history, Version version,
                                   const Bytes& bytes) {
  for (std::size_t i = script.made.size(); i-- > 0;) {
    const Made& made = script.made[i];
    if (made.history == history && made.version == version && script.contents(made) == bytes) return i;
  }
  return {};
}

}  // namespace

Recorded record(std::uint64_t seed, const SubjectOptions& options, const ScriptOptions& how, std::uint64_t failing) {
  Recorded out{make_script(seed, how), options, {}, {}};
  out.options.keep_last = out.script.keep_last;
  out.options.keep_every = out.script.keep_every;
  const auto files = std::make_shared<MemoryFiles>();
  Runner runner{out.script, files, options, [&](const Event& event) { files->note(text_of(event)); }};
  if (how.retention) runner.allow_dropped();
  out.failing = failing;
  if (failing) {
    files->fail_sync(failing);
    runner.tells_lost = true;
    runner.failed = [](const Step&, const Error&) {};
  }
  runner.run();
  out.journal = files->journal();
  out.name = std::string(name_of(options.layer)) + (options.synced ? "" : ", process") +
             (how.retention ? ", retention" : "") + ", script " + std::to_string(seed) +
             (failing ? ", sync " + std::to_string(failing) + " fails" : "");
  return out;
}

Recorded record_next(const Recorded& first, std::size_t n, bool collects) {
  Recorded out = first;
  out.name += ", killed at " + std::to_string(n);
  out.killed = n;
  out.script.made.push_back({next_history(out.options), kNext, 0, 10'000});
  const std::size_t more = out.script.made.size() - 1;
  const std::shared_ptr<MemoryFiles> files = PowerLoss(first.journal).killed(n);
  const auto tell = [&](Event::Kind kind, std::size_t made = 0) { files->note(text_of({kind, made})); };
  std::unique_ptr<Subject> store;
  const auto open = [&] {  // what it finds
    store = open_subject(files, out.options).value();
    const Seen seen = look(*store, out.script.histories());
    tell(Event::Kind::opened);
    if (!out.opened) out.opened = files->changes();
    std::vector<std::size_t> found;
    for (const auto& [history, versions] : seen.offered) {
      for (const auto& [version, bytes] : versions) {
        if (!bytes) throw BadResult(bytes.error());
        const auto made = made_of(out.script, history, version, *bytes);
        if (!made) throw std::runtime_error("nobody wrote what the next one finds");
        found.push_back(*made);
        if (out.options.synced) tell(Event::Kind::durable, *made);
      }
    }
    return found;
  };
  const auto close = [&] {
    store->close().value();
    tell(Event::Kind::closed);
  };
  const admin::GcOptions all{.keep_last = out.script.keep_last, .keep_every = out.script.keep_every};
  if (collects) storage::collect(*files, out.options.directory, all).value();
  const std::vector<std::size_t> found = open();
  if (!found.empty() && out.script.keep_last == 0) {
    const Made& one = out.script.made[found[n % found.size()]];
    tell(Event::Kind::dropping, found[n % found.size()]);
    store->drop(one.history, one.version).value();
  }
  close();
  open();
  tell(Event::Kind::begun, more);
  const Made& made = out.script.made[more];
  store->write(made, out.script.contents(made)).value();
  store->wait(made.history, made.version).value();
  tell(Event::Kind::durable, more);
  close();
  out.journal = files->journal();
  return out;
}

StateJudge::StateJudge(const Recorded& recorded, bool machine_stopped)
    : recorded_(recorded),
      script_(recorded.script),
      rules_{.kept = recorded.options.synced || !machine_stopped,
             .whole = recorded.options.synced || !machine_stopped} {
  script_.made.push_back({next_history(recorded.options), kExtra, 0, 10'000});
}

Verdict StateJudge::judge(const Files& files, std::vector<Event> events, bool ended_well, std::uint64_t seed,
                          int depth) {
  out_ = {};
  look_at(files, events, ended_well);
  const std::size_t before = files->changes();
  mend(files, events);
  if (depth > 0 && recorded_.options.synced) {
    const PowerLoss again(files->journal());
    std::mt19937_64 random(seed);
    const std::size_t n = before + random() % (again.size() - before + 1);
    std::vector<Event> more = events;
    const auto notes = events_of(again.notes(n));
    more.insert(more.end(), notes.begin(), notes.end());
    look_at(again.crash(n, seed, recorded_.torn), more, false);
  }
  return out_;
}

void StateJudge::add(const Verdict& verdict, const char* where) {
  out_.outcome = std::max(out_.outcome, verdict.outcome);
  for (const std::string& what : verdict.violations) out_.violations.push_back(std::string(where) + what);
}

Result<std::unique_ptr<Subject>> StateJudge::open(const Files& files, bool readonly) {
  SubjectOptions options = recorded_.options;
  options.readonly = readonly;
  return open_subject(files, options);
}

// As a program that only reads meets it.
void StateJudge::look_at(const Files& files, const std::vector<Event>& events, bool ended_well) {
  auto store = open(files, true);
  if (!store) {
    const bool none = store.error().code == Errc::not_a_store && !is_there(events);
    if (!none) out_.outcome = std::max(out_.outcome, Outcome::clear_error);
    if (is_there(events) && rules_.kept)
      wrong(Outcome::silent_wrong, "it was opened, and is no store: " + store.error().message);
    return;
  }
  add(trials::judge(script_, events, look(**store, script_.histories()), rules_), "");
  static_cast<void>((*store)->close());
  auto scanned = storage::scan_store(*files, recorded_.options.directory, true);
  if (!scanned) return wrong(Outcome::clear_error, "it cannot be scanned: " + scanned.error().message);
  for (const storage::Damage& damage : scanned->damages) {
    if (damage.file.filename() == storage::kIndexFile && rules_.whole)
      wrong(Outcome::clear_error, "the index: " + damage.what);
  }
  if (ended_well && rules_.kept && !scanned->from_index)
    wrong(Outcome::clear_error, "it was closed, and its index does not serve");
  look_beside_rot(files, events);
}

// Of two writings of one version the head of the newer one rots: the older one, which it replaced, does not come back.
void StateJudge::look_beside_rot(const Files& files, const std::vector<Event>& events) {
  std::map<std::pair<std::string, Version>, std::vector<storage::RecordHead>> all;
  const auto scanned = storage::scan_store(*files, recorded_.options.directory, false).value();
  for (const storage::ScannedSegment& segment : scanned.segments) {
    for (const storage::ScannedRecord& record : segment.records)
      all[{record.history, record.head.version}].push_back(record.head);
  }
  std::erase_if(all, [](const auto& one) { return one.second.size() < 2; });
  if (all.empty()) return;
  const PowerLoss now(files->journal());
  const Files rotten = now.prefix(now.size());
  for (const auto& [name, heads] : all) {
    const storage::RecordPlace place = std::ranges::max(heads, {}, &storage::RecordHead::sequence).place;
    const auto path = storage::segment_path(recorded_.options.directory, place.segment);
    const auto opened = rotten->open(path, os::Open::write, false);
    const os::File file(*rotten, static_cast<int>(opened.value), path.string(), false);
    const std::byte rot{0x5a};
    static_cast<void>(rotten->write(file.fd(), &rot, 1, place.offset + 500));  // in its checksum
  }
  auto store = open(rotten, true);
  if (!store) return wrong(Outcome::clear_error, "beside rot it cannot be opened: " + store.error().message);
  Rules rules = rules_;
  rules.there = rules.whole = false;
  const Verdict found = trials::judge(script_, events, look(**store, script_.histories()), rules);
  for (const std::string& what : found.violations) wrong(Outcome::silent_wrong, "the newer one rotted: " + what);
}

// As the next program meets it, which writes one more.
void StateJudge::mend(const Files& files, const std::vector<Event>& events) {
  std::vector<Event> more = events;
  const auto tell = [&](Event::Kind kind) {
    const Event event{kind, script_.made.size() - 1};
    files->note(text_of(event));
    more.push_back(event);
  };
  {
    auto store = open(files, false);
    if (!store) {
      if (rules_.kept) wrong(Outcome::clear_error, "it cannot be opened to go on: " + store.error().message);
      return;
    }
    tell(Event::Kind::opened);
    add(trials::judge(script_, events, look(**store, script_.histories()), rules_), "opened to be written: ");
    const Made& extra = script_.made.back();
    tell(Event::Kind::begun);
    auto done = (*store)->write(extra, script_.contents(extra));
    if (done) done = (*store)->wait(extra.history, extra.version);
    if (!done) return wrong(Outcome::clear_error, "the next one cannot be written: " + done.error().message);
    tell(Event::Kind::durable);
    if (const auto closed = (*store)->close(); !closed)
      return wrong(Outcome::clear_error, "closing it: " + closed.error().message);
    tell(Event::Kind::closed);
  }
  auto store = open(files, true);
  if (!store) return wrong(Outcome::clear_error, "it cannot be opened again: " + store.error().message);
  add(trials::judge(script_, more, look(**store, script_.histories()), rules_), "opened again: ");
}

std::size_t first_opening(const Recorded& recorded) {
  const auto& changes = recorded.journal.changes;
  const auto at = std::ranges::find_if(changes, [](const Change& change) { return change.kind == Change::Kind::note; });
  return static_cast<std::size_t>(at - changes.begin()) + 1;
}

Moments::Moments(const Recorded& recorded, const PowerLoss& power) : first_(recorded.killed), last_(power.size()) {
  for (const std::size_t note : power.all(Change::Kind::note)) {
    if (note > first_) notes_.push_back(note);
  }
}

std::size_t Moments::draw(std::mt19937_64& random) const {
  if (!notes_.empty() && random() % 3 == 0) return notes_[random() % notes_.size()];
  return first_ + random() % (last_ - first_ + 1);
}

std::size_t states_until_red(const Recorded& recorded, std::size_t most, std::uint64_t seed, Report& report,
                             std::string& what) {
  const PowerLoss power(recorded.journal);
  const Moments moments(recorded, power);
  StateJudge judge(recorded, true);
  std::mt19937_64 random(seed);
  for (std::size_t i = 1; i <= most; ++i) {
    const std::size_t n = moments.draw(random);
    const std::uint64_t lot = random();
    report.begin(recorded.name + ", state " + std::to_string(n) + ", seed " + std::to_string(lot));
    const Verdict verdict = judge.judge(power.crash(n, lot), events_of(power.notes(n)), false, lot, 0);
    if (verdict.violations.empty()) continue;
    what = verdict.violations.front();
    return i;
  }
  return 0;
}

}  // namespace ebb::trials
