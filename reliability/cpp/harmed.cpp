#include "reliability/cpp/harmed.hpp"

#include <algorithm>
#include <stdexcept>

#include "reliability/cpp/runner.hpp"
#include "reliability/cpp/trial.hpp"
#include "storage/admin/inspect.hpp"
#include "tests/doubles/power_loss.hpp"

namespace ebb::trials {
namespace {

void worst(Verdict& verdict, Outcome outcome) { verdict.outcome = std::max(verdict.outcome, outcome); }

void wrong(Verdict& verdict, Outcome outcome, const std::string& what) {
  worst(verdict, outcome);
  verdict.violations.push_back(what);
}

void compare_history(const Image& image, const std::string& history, const Seen& seen, bool named, Verdict& verdict) {
  static const std::map<Version, Result<Bytes>> kNone;
  const auto of = [&](const Seen& any) -> const std::map<Version, Result<Bytes>>& {
    const auto found = any.offered.find(history);
    return found == any.offered.end() ? kNone : found->second;
  };
  const auto& before = of(image.seen);
  std::optional<Version> newest;
  for (const auto& [version, bytes] : of(seen)) {
    const std::string name = name_of(Made{history, version, 0, 0}) + ": ";
    const auto old = before.find(version);
    if (!bytes) {
      worst(verdict, Outcome::clear_error);
    } else if (old == before.end()) {
      wrong(verdict, Outcome::silent_wrong, name + "there was none");
    } else if (*bytes != *old->second) {
      wrong(verdict, Outcome::silent_wrong, name + "its bytes are wrong");
    } else {
      newest = version;
    }
  }
  for (const auto& [version, bytes] : before) {
    if (of(seen).contains(version)) continue;
    worst(verdict, Outcome::older_exact);
    if (!named)
      wrong(verdict, Outcome::silent_wrong,
            name_of(Made{history, version, 0, 0}) + ": it is gone, and nothing says so");
  }
  const Result<std::optional<Version>>& latest = seen.latest.at(history);
  if (!latest)
    worst(verdict, Outcome::clear_error);
  else if (*latest != newest)
    wrong(verdict, Outcome::silent_wrong, "latest() of \"" + history + "\" is not the newest intact one");
}

}  // namespace

Image make_image(std::uint64_t seed, const ScriptOptions& how, bool closed) {
  Image image{make_script(seed, how), {}, {}, {}, closed, {}};
  const auto files = std::make_shared<MemoryFiles>();
  SubjectOptions options;
  options.layer = Layer::storage;
  Runner{image.script, files, options, [&](const Event& event) { files->note(text_of(event)); }}.run();
  const doubles::PowerLoss all(files->journal());
  std::size_t end = all.size();
  if (!closed) {  // the last promise before the last close
    for (const std::size_t at : all.all(doubles::Change::Kind::note)) {
      if (all.change(at).text.starts_with("durable")) end = at;
    }
  }
  for (std::size_t at = 1; at <= end; ++at) image.tree.apply(all.change(at));
  image.tree.sweep();
  const auto fresh = image.open();
  options.readonly = true;
  image.seen = look(*open_subject(fresh, options).value(), image.script.histories());
  for (const auto& [history, versions] : image.seen.offered) {
    for (const auto& [version, bytes] : versions) {
      if (!bytes) throw std::runtime_error("a store that nobody harmed cannot be read: " + bytes.error().message);
    }
  }
  image.scanned = storage::scan_store(*fresh, kDirectory, false).value();
  std::vector<std::string> names;
  static_cast<void>(fresh->list(kDirectory, names));
  for (const std::string& name : names) {
    os::FileStatus status;
    static_cast<void>(fresh->status(std::filesystem::path(kDirectory) / name, status));
    image.files.emplace_back(name, status.bytes);
  }
  return image;
}

Result<Named> verify_all(MemoryFiles& files) {
  auto seen = storage::inspect(files, kDirectory);
  if (!seen) return seen.error();
  Named named;
  for (const storage::InspectedDamage& one : seen->damages)
    named.push_back({one.damage.file.filename(), one.damage.offset, one.history, one.version});
  std::vector<storage::RecordHead> heads;
  for (const storage::Inspected& record : seen->records) heads.push_back(record.head);
  const std::vector<storage::Verified> verdicts = storage::verify_all(files, kDirectory, heads, 1);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i].kind == admin::Verdict::Kind::intact) continue;
    const storage::Inspected& record = seen->records[i];
    const storage::Damage& damage = verdicts[i].damage;
    named.push_back({damage.file.filename(), damage.offset, record.history, record.head.version});
  }
  return named;
}

Verdict compare(const Image& image, const std::shared_ptr<MemoryFiles>& files, Layer layer, bool readonly,
                const Named* named) {
  Verdict verdict;
  SubjectOptions options;
  options.layer = layer;
  options.readonly = readonly;
  auto store = open_subject(files, options);
  if (!store) return {Outcome::clear_error, {}};
  const Seen seen = look(**store, image.script.histories());
  for (const std::string& history : image.script.histories()) {
    compare_history(image, history, seen, named == nullptr || !named->empty(), verdict);
  }
  if (readonly) return verdict;
  // The store goes on, and what it had it still has.
  const Made extra{"adjoint", 1'000'000, 0, 9'000};
  const Bytes contents = image.script.contents(extra);
  auto done = (*store)->write(extra, contents);
  if (done) done = (*store)->wait(extra.history, extra.version);
  if (done) done = (*store)->close();
  if (!done) wrong(verdict, Outcome::clear_error, "it does not go on: " + done.error().message);
  store->reset();
  options.readonly = true;
  auto again = open_subject(files, options);
  if (!again) {
    wrong(verdict, Outcome::clear_error, "it cannot be opened again: " + again.error().message);
    return verdict;
  }
  for (const auto& [history, versions] : seen.offered) {
    for (const auto& [version, bytes] : versions) {
      if (!bytes) continue;
      auto now = (*again)->read(history, version);
      if (!now || *now != *bytes)
        wrong(verdict, Outcome::silent_wrong, name_of(Made{history, version, 0, 0}) + ": it was lost by opening");
    }
  }
  auto now = (*again)->read(extra.history, extra.version);
  if (done && (!now || *now != contents)) wrong(verdict, Outcome::silent_wrong, "the next one is not there");
  return verdict;
}

}  // namespace ebb::trials
