// Stores that nobody wrote in good faith: right checksums over wrong numbers. Nothing may crash, nothing outside may be
// touched, what is refused is refused by name, and every byte that comes back is what a second reader reads there.
// Meant for the address sanitizer too.
#include <algorithm>
#include <array>
#include <set>

#include "reliability/cpp/forgeries.hpp"
#include "reliability/cpp/stranger.hpp"
#include "reliability/cpp/trial.hpp"
#include "storage/admin/inspect.hpp"

namespace ebb::trials {
namespace {

/// All that can be asked of a forged store, held against what a second reader makes of its files.
class Questions {
 public:
  Questions(const Image& image, Layer layer, const std::string& where, Report& report)
      : image_(image), where_(where), report_(report) {
    options_.layer = layer;
  }

  Outcome ask(const std::shared_ptr<MemoryFiles>& files) {
    const Stranger right = read_as_stranger(*files, kDirectory);
    named_ = false;
    auto inspection = storage::inspect(*files, kDirectory);
    if (!inspection) hear(inspection.error());
    named_ = !inspection || !inspection->damages.empty();
    const std::size_t before = files->changes();
    if (const auto reader = open(files, true, right)) compare(right, look(*reader, histories(right)));
    if (files->changes() != before) wrong("reading it changed it");
    if (const auto writer = open(files, false, right)) go_on(files, right, *writer);
    return outcome_;
  }

 private:
  void worst(Outcome outcome) { outcome_ = std::max(outcome_, outcome); }
  void wrong(const std::string& what) {
    worst(Outcome::silent_wrong);
    report_.violation(where_ + ": " + what);
  }
  void hear(const Error& error) {
    worst(Outcome::clear_error);
    if (error.code == Errc::ok || error.message.empty()) wrong("an error without a name");
  }

  std::unique_ptr<Subject> open(const std::shared_ptr<MemoryFiles>& files, bool readonly, const Stranger& right) {
    options_.readonly = readonly;
    auto store = open_subject(files, options_);
    if (store) {
      if (!right.refused.empty()) wrong("it was opened, though " + right.refused);
      return std::move(*store);
    }
    hear(store.error());
    const bool other_level = !readonly && right.synced != options_.synced;  // a writer names it, a reader takes it
    if (right.refused.empty() && right.refused_unindexed.empty() && !other_level)
      wrong("a stranger can read it, and: " + store.error().message);
    return nullptr;
  }

  std::vector<std::string> histories(const Stranger& right) const {
    const std::vector<std::string> script = image_.script.histories();
    std::set<std::string> all(script.begin(), script.end());
    for (const auto& [name, writings] : right.writings) all.insert(name.first);
    return {all.begin(), all.end()};
  }

  // Every byte that came back is of a record that has this name, and of the one that counts; what counts came back.
  void compare(const Stranger& right, const Seen& seen) {
    for (const auto& [history, versions] : seen.offered) {
      std::optional<Version> newest;
      for (const auto& [version, bytes] : versions) {
        compare_one(right, {history, version}, bytes);
        if (bytes) newest = version;
      }
      compare_latest(seen, history, newest);
    }
    for (const auto& [name, writings] : right.writings) {
      const auto offered = seen.offered.find(name.first);
      if (offered != seen.offered.end() && offered->second.contains(name.second)) continue;
      if (std::ranges::all_of(writings, &Stranger::Writing::dropped)) continue;
      worst(Outcome::older_exact);
      if (must_be_there(right, name)) wrong(text_of(name) + " is intact, is not offered, and nothing says so");
    }
  }

  void compare_one(const Stranger& right, const Stranger::Name& name, const Result<Bytes>& bytes) {
    if (!bytes) {
      hear(bytes.error());
      if (must_be_there(right, name)) wrong(text_of(name) + " is intact, and: " + bytes.error().message);
      return;
    }
    const auto allowed = may_be(right, name);
    const bool found = std::ranges::any_of(allowed, [&](const auto* one) { return one->bytes == *bytes; });
    if (!found) {
      wrong(text_of(name) + ": " + std::to_string((*bytes).size()) + " bytes came back that are not its own");
    }
    report_.count_by("checkpoints compared, every byte");
  }

  void compare_latest(const Seen& seen, const std::string& history, std::optional<Version> newest) {
    const Result<std::optional<Version>>& latest = seen.latest.at(history);
    if (!latest) return hear(latest.error());
    if (*latest != newest) wrong("latest() of " + text_of({history, newest.value_or(-1)}) + " is another one");
  }

  // An index is believed where it speaks of these files: it may not know the newest of one name, and gives no record
  // another one.
  static std::vector<const Stranger::Writing*> may_be(const Stranger& right, const Stranger::Name& name) {
    std::vector<const Stranger::Writing*> out = right.newest(name);
    if (const auto found = right.anywhere.find(name); found != right.anywhere.end()) {
      out.clear();
      for (const Stranger::Writing& one : found->second) out.push_back(&one);
    }
    std::erase_if(out, [](const auto* one) { return !one->intact; });
    return out;
  }

  // A stranger reads it, all of it; unless an index that says otherwise is found out.
  bool must_be_there(const Stranger& right, const Stranger::Name& name) const {
    const auto newest = right.newest(name);
    const bool whole = std::ranges::all_of(newest, &Stranger::Writing::intact);
    return !newest.empty() && whole && !(right.index && named_);
  }

  // The next process writes one more: that is there, and so is what was.
  void go_on(const std::shared_ptr<MemoryFiles>& files, const Stranger& right, Subject& store) {
    const Seen before = look(store, histories(right));
    compare(right, before);
    const Made extra{"adjoint", 1'000'000, 0, 9'000};
    const Bytes contents = image_.script.contents(extra);
    auto written = store.write(extra, contents);
    if (written) written = store.wait(extra.history, extra.version);
    if (!written) hear(written.error());
    if (const auto closed = store.close(); !closed) return hear(closed.error());
    const Stranger after = read_as_stranger(*files, kDirectory);
    const auto again = open(files, true, after);
    if (!again) return;
    const Seen seen = look(*again, histories(after));
    compare(after, seen);
    for (const auto& [history, versions] : before.offered) {
      for (const auto& [version, bytes] : versions) {
        if (bytes) expect_there(seen, {history, version}, *bytes, "it was lost by opening");
      }
    }
    if (written) expect_there(seen, {extra.history, extra.version}, contents, "the next one is not there");
  }

  void expect_there(const Seen& seen, const Stranger::Name& name, const Bytes& bytes, const std::string& what) {
    const auto versions = seen.offered.find(name.first);
    if (versions != seen.offered.end()) {
      const auto now = versions->second.find(name.second);
      if (now != versions->second.end() && now->second && *now->second == bytes) return;
    }
    wrong(text_of(name) + ": " + what);
  }

  static std::string text_of(const Stranger::Name& name) {
    return name_of({name.first.substr(0, 40), name.second, 0, 0});
  }

  const Image& image_;
  const std::string where_;
  Report& report_;
  SubjectOptions options_;
  Outcome outcome_ = Outcome::exact;
  bool named_ = false;  // looking at everything tells of something
};

// The second reader is worth nothing where it does not read what was written.
void check_reader(const Image& image, Report& report) {
  const auto files = image.open();
  const Stranger right = read_as_stranger(*files, kDirectory);
  const std::string where = "store " + std::to_string(image.script.seed) + ", which nobody forged: ";
  if (!right.refused.empty()) report.violation(where + right.refused);
  for (const auto& [history, versions] : image.seen.offered) {
    for (const auto& [version, bytes] : versions) {
      const auto newest = right.newest({history, version});
      const bool same = newest.size() == 1 && newest[0]->intact && newest[0]->bytes == *bytes;
      if (!same) report.violation(where + name_of({history, version, 0, 0}) + " is another one to the second reader");
    }
  }
  for (const auto& [name, writings] : right.writings) {
    const auto history = image.seen.offered.find(name.first);
    if (history == image.seen.offered.end() || history->second.contains(name.second)) continue;
    if (std::ranges::any_of(writings, &Stranger::Writing::intact))
      report.violation(where + name_of({name.first, name.second, 0, 0}) + " is only there for the second reader");
  }
}

// Two histories whose names are as long as each other: an index can take them for one another.
bool has_twins(const Image& image) {
  std::set<std::string> names;
  for (const storage::ScannedSegment& segment : image.scanned.segments) {
    for (const storage::ScannedRecord& record : segment.records) names.insert(record.history);
  }
  return std::ranges::any_of(names, [&](const std::string& one) {
    return std::ranges::any_of(names, [&](const auto& other) { return one < other && one.size() == other.size(); });
  });
}

// Whether there is something where a store has nothing to do.
bool touches_others(MemoryFiles& files) {
  std::vector<std::string> names;
  static_cast<void>(files.list("/", names));
  return names != std::vector<std::string>{"store"};
}

// Names of histories are any bytes, and never those of files.
void try_names(const TrialOptions& options, Report& report) {
  const std::array<std::string, 9> kNames{"..",
                                          "/",
                                          "../../etc/passwd",
                                          std::string("a\0b", 3),
                                          "\xff\xfe\xc0\xaf",
                                          std::string(10'000, 'n'),
                                          "segment-00000001.ebb",
                                          std::string(65'536, 'x'),
                                          std::string(65'537, 'y')};
  for (const Layer layer : {Layer::storage, Layer::store}) {
    for (const std::string& name : kNames) {
      report.begin("a history's name of " + std::to_string(name.size()) + " bytes");
      const auto files = std::make_shared<MemoryFiles>();
      SubjectOptions subject;
      subject.layer = layer;
      Script script;
      script.seed = options.seed;
      const Made made{name, 3, 0, 5'000};
      auto store = open_subject(files, subject).value();
      auto done = store->write(made, script.contents(made));
      if (done) done = store->wait(name, 3);
      static_cast<void>(store->close());
      store = open_subject(files, subject).value();
      auto back = store->read(name, 3);
      const bool fits = name.size() <= storage::kMaxName;
      if (fits != static_cast<bool>(done))
        report.violation(report.current() + (done ? ": it was taken" : ": " + done.error().message));
      if (fits && (!back || *back != script.contents(made)))
        report.violation(report.current() + ": it does not come back");
      if (!fits && back) report.violation(report.current() + ": it is there");
      if (touches_others(*files)) report.violation(report.current() + ": something outside was touched");
      report.count(fits ? Outcome::exact : Outcome::clear_error);
      report.count_by("names of histories");
    }
  }
}

}  // namespace

void run_hostile(const TrialOptions& options, Report& report) {
  try_names(options, report);
  const std::uint64_t count = options.count ? options.count : options.short_form ? 300 : 20'000;
  Random random(options.seed);
  std::vector<Image> images;
  for (std::uint64_t next = options.seed * 1000; images.size() < 4; ++next) {
    report.begin("making a store");
    Image image = make_image(next, {.openings = 2, .writes = 5, .largest = 20'000}, images.size() % 2 == 0);
    check_reader(image, report);
    if (has_twins(image)) images.push_back(std::move(image));
  }
  const std::span<const Forgery> all = forgeries();
  for (std::uint64_t i = 0; i < count; ++i) {
    const Image& image = images[random() % images.size()];
    const Forgery& forgery = all[random() % all.size()];
    const std::uint64_t lot = random();
    const std::string where =
        std::string(forgery.name) + ", store " + std::to_string(image.script.seed) + ", seed " + std::to_string(lot);
    report.begin(where);
    const auto files = image.open();
    Random own(lot);
    forgery.make(image, *files, own);
    const Outcome outcome = Questions(image, i % 3 == 0 ? Layer::store : Layer::storage, where, report).ask(files);
    if (touches_others(*files)) report.violation(where + ": something outside was touched");
    report.count(outcome);
    report.count_by(forgery.name);
  }
}

}  // namespace ebb::trials
