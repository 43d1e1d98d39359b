// Whether what is reported durable has a name in the directory at that moment. A file that was removed is written and
// synced as well as any other.
#include <algorithm>
#include <iterator>

#include "storage/segments/kept_store.hpp"

namespace ebb::storage {

using platform::FileStatus;
using State = KeptObject::State;

// What was written to segments without a name fails with them. The others of that sync are refused: a program that
// waits for nothing else hears of the loss.
std::vector<KeptStore::Object> KeptStore::refuse_unnamed(std::map<Segment, std::vector<Object>>& groups) {
  if (groups.empty()) return {};
  if (auto same = directory_.in_place(); !same) {
    for (const auto& [segment, objects] : groups) fail(segment, same.error());
    groups.clear();
    return {};
  }
  std::vector<Segment> written;
  for (const auto& [segment, objects] : groups) written.push_back(segment);
  const std::vector<Segment> unnamed = find_unnamed(written);
  if (unnamed.empty()) return {};
  for (const Segment& segment : unnamed) {
    fail(segment, unnamed_error(segment));
    groups.erase(segment);
  }
  std::vector<Object> others;
  for (const auto& [segment, objects] : groups) others.insert(others.end(), objects.begin(), objects.end());
  groups.clear();
  const Error error = unnamed_error(unnamed.front());
  return refuse(others, [&](const KeptObject&) { return std::optional(error); });
}

// Those of all segments that are not in the directory, each told of once; of `written`, to which the files are open,
// also those in whose place there is another file.
std::vector<KeptStore::Segment> KeptStore::find_unnamed(const std::vector<Segment>& written) {
  std::vector<Segment> known;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, segment] : segments_) {
      if (!segment->unnamed && std::ranges::find(written, segment) == written.end()) known.push_back(segment);
    }
  }
  std::vector<std::string> names;
  std::set<std::uint64_t> listed;
  const bool whole = known.empty() || files_.list(directory_.path(), names);
  for (const std::string& name : names) {
    if (const auto number = segment_number(name)) listed.insert(*number);
  }
  std::vector<Segment> out;
  for (const Segment& segment : written) {
    if (!is_named(segment, nullptr)) out.push_back(segment);
  }
  for (const Segment& segment : known) {
    if (!is_named(segment, whole ? &listed : nullptr)) out.push_back(segment);
  }
  std::lock_guard lock(mutex_);
  std::erase_if(out, [&](const Segment& segment) {  // this process has removed it meanwhile
    const auto there = segments_.find(segment->number);
    return there == segments_.end() || there->second != segment;
  });
  for (const Segment& segment : out) segment->unnamed = true;
  return out;
}

bool KeptStore::is_named(const Segment& segment, const std::set<std::uint64_t>* listed) const {
  if (listed) return listed->contains(segment->number);
  FileStatus named, open;
  const auto found = files_.status(segments_files_.path(segment->number), named);
  if (!found) return found.error != ENOENT && found.error != ENOTDIR;
  SharedFile file;
  {
    std::lock_guard lock(mutex_);
    file = segment->file;
  }
  return !file || !files_.status(file->fd(), open) || (open.links > 0 && named.is(open));
}

Error KeptStore::unnamed_error(const Segment& segment) const {
  constexpr std::size_t kNamed = 3;
  std::string lost;
  std::size_t count = 0;
  std::lock_guard lock(mutex_);
  for (const auto& [offset, object] : segment->records) {
    if (object->state != State::kept || object->dropped) continue;
    if (count++ < kNamed) lost += (lost.empty() ? "" : ", ") + name_of(*object);
  }
  if (count > kNamed) lost += " and " + std::to_string(count - kNamed) + " more";
  return {Errc::io_error, segments_files_.path(segment->number).string() +
                              ": the file was removed, renamed or replaced while the store was open" +
                              (count ? "; lost with it: " + lost : "")};
}

Result<void> KeptStore::check_names() {
  if (options_.readonly) return {};
  if (auto same = directory_.in_place(); !same) return same;
  static_cast<void>(find_unnamed({}));
  std::vector<Segment> unnamed;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, segment] : segments_) {
      if (segment->unnamed) unnamed.push_back(segment);
    }
  }
  if (unnamed.empty()) return {};
  return unnamed_error(unnamed.front());
}

}  // namespace ebb::storage
