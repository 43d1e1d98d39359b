#include "storage/segments/segment_presence.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

namespace {

// By name; if the file is open, the name must lead to the same file.
bool is_there(const StoreContext& context, const ObjectTable& table, const SegmentState& segment) {
  os::FileStatus named, open;
  const auto found = context.files.status(context.segment_files.path(segment.number), named);
  if (!found) return found.error != ENOENT && found.error != ENOTDIR;
  const SharedFile file = table.file_of(segment);
  return !file || !context.files.status(file->fd(), open) || (open.links > 0 && named.is(open));
}

}  // namespace

std::vector<SharedSegment> find_missing(const StoreContext& context, ObjectTable& table,
                                        const std::vector<SharedSegment>& written) {
  std::vector<SharedSegment> known;
  {
    const TableLocked lock = table.lock();
    for (const auto& [number, segment] : table.segments(lock)) {
      if (!segment->missing && std::ranges::find(written, segment) == written.end()) known.push_back(segment);
    }
  }
  std::optional<std::vector<std::uint64_t>> listed;
  if (!known.empty()) {
    if (auto list = list_segments(context.files, context.directory.path())) listed = std::move(*list);
  }
  std::vector<SharedSegment> out;
  for (const SharedSegment& segment : written) {
    if (!is_there(context, table, *segment)) out.push_back(segment);
  }
  for (const SharedSegment& segment : known) {
    if (!(listed ? std::ranges::binary_search(*listed, segment->number) : is_there(context, table, *segment)))
      out.push_back(segment);
  }
  const TableLocked lock = table.lock();
  std::erase_if(out, [&](const SharedSegment& segment) {  // removed by this process in the meantime
    const auto there = table.segments(lock).find(segment->number);
    return there == table.segments(lock).end() || there->second != segment;
  });
  for (const SharedSegment& segment : out) segment->missing = true;
  return out;
}

Error missing_error(const StoreContext& context, ObjectTable& table, const SharedSegment& segment) {
  constexpr std::size_t kNamed = 3;
  std::string lost;
  std::size_t count = 0;
  const TableLocked lock = table.lock();
  for (const SharedObject& object : segment->records.objects()) {
    if (object->state != ObjectState::persistent || object->dropped) continue;
    if (count++ < kNamed) lost += (lost.empty() ? "" : ", ") + object->name();
  }
  if (count > kNamed) lost += " and " + std::to_string(count - kNamed) + " more";
  return {Errc::io_error, context.segment_files.path(segment->number).string() +
                              ": the file was removed, renamed or replaced while the store was open" +
                              (count ? "; lost with it: " + lost : "")};
}

Result<void> check_presence(const StoreContext& context, ObjectTable& table) {
  if (context.options.readonly) return {};
  if (auto same = context.directory.in_place(); !same) return same;
  static_cast<void>(find_missing(context, table, {}));
  SharedSegment first;
  {
    const TableLocked lock = table.lock();
    const auto& segments = table.segments(lock);
    const auto found = std::ranges::find_if(segments, [](const auto& one) { return one.second->missing; });
    if (found == segments.end()) return {};
    first = found->second;
  }
  return missing_error(context, table, first);
}

}  // namespace ebb::storage
