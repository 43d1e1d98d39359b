#include "storage/segments/segment_presence.hpp"

#include <algorithm>
#include <cerrno>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

std::vector<SharedSegment> SegmentPresence::find_missing(const std::vector<SharedSegment>& written) {
  std::vector<SharedSegment> known;
  {
    const Locked lock = table_.lock();
    for (const auto& [number, segment] : table_.segments(lock)) {
      if (!segment->unnamed && std::ranges::find(written, segment) == written.end()) known.push_back(segment);
    }
  }
  std::vector<std::string> names;
  std::set<std::uint64_t> listed;
  const bool whole = known.empty() || context_.files.list(context_.directory.path(), names);
  for (const std::string& name : names) {
    if (const auto number = segment_number(name)) listed.insert(*number);
  }
  std::vector<SharedSegment> out;
  for (const SharedSegment& segment : written) {
    if (!is_there(segment, nullptr)) out.push_back(segment);
  }
  for (const SharedSegment& segment : known) {
    if (!is_there(segment, whole ? &listed : nullptr)) out.push_back(segment);
  }
  const Locked lock = table_.lock();
  std::erase_if(out, [&](const SharedSegment& segment) {  // this process has removed it meanwhile
    const auto there = table_.segments(lock).find(segment->number);
    return there == table_.segments(lock).end() || there->second != segment;
  });
  for (const SharedSegment& segment : out) segment->unnamed = true;
  return out;
}

bool SegmentPresence::is_there(const SharedSegment& segment, const std::set<std::uint64_t>* listed) const {
  if (listed) return listed->contains(segment->number);
  platform::FileStatus named, open;
  const auto found = context_.files.status(context_.segment_files.path(segment->number), named);
  if (!found) return found.error != ENOENT && found.error != ENOTDIR;
  SharedFile file;
  {
    const Locked lock = table_.lock();
    file = segment->file;
  }
  return !file || !context_.files.status(file->fd(), open) || (open.links > 0 && named.is(open));
}

Error SegmentPresence::missing(const SharedSegment& segment) const {
  constexpr std::size_t kNamed = 3;
  std::string lost;
  std::size_t count = 0;
  const Locked lock = table_.lock();
  for (const auto& [offset, object] : segment->records) {
    if (object->state != KeptObject::State::kept || object->dropped) continue;
    if (count++ < kNamed) lost += (lost.empty() ? "" : ", ") + object->name();
  }
  if (count > kNamed) lost += " and " + std::to_string(count - kNamed) + " more";
  return {Errc::io_error, context_.segment_files.path(segment->number).string() +
                              ": the file was removed, renamed or replaced while the store was open" +
                              (count ? "; lost with it: " + lost : "")};
}

Result<void> SegmentPresence::check() {
  if (context_.options.readonly) return {};
  if (auto same = context_.directory.in_place(); !same) return same;
  static_cast<void>(find_missing({}));
  SharedSegment first;
  {
    const Locked lock = table_.lock();
    const auto& segments = table_.segments(lock);
    const auto found = std::ranges::find_if(segments, [](const auto& one) { return one.second->unnamed; });
    if (found == segments.end()) return {};
    first = found->second;
  }
  return missing(first);
}

}  // namespace ebb::storage
