#include "storage/segments/store_index.hpp"

#include <algorithm>
#include <cerrno>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

using platform::kBlock;

// It stays under another name: after a crash it tells which heads were there once.
Result<void> set_index_aside(StoreContext& context) {
  const std::filesystem::path& directory = context.directory.path();
  const auto index = directory / kIndexFile, beside = directory / kNewIndexFile;
  const auto renamed = context.files.rename(index, directory / kOldIndexFile);
  if (!renamed && renamed.error != ENOENT) return file_error(index, "renaming it", renamed.error);
  const auto removed = context.files.remove(beside);
  if (!removed && removed.error != ENOENT) return file_error(beside, "removing it", removed.error);
  if (!renamed && !removed) return {};
  const auto synced = context.files.sync_directory(directory);
  if (!synced) return file_error(directory, "syncing it", synced.error);
  return {};
}

// Written beside, then named.
void write_index(StoreContext& context, ObjectTable& table, const std::vector<Damage>& damages) {
  if (!context.directory.in_place()) return;
  const std::filesystem::path& directory = context.directory.path();
  ScannedStore store;
  std::map<std::uint64_t, SharedSegment> segments;
  {
    const Locked lock = table.lock();
    store.next_sequence = table.next(lock).sequence;
    segments = table.segments(lock);  // they change no more
  }
  store.head = context.directory.head();
  store.damages = damages;
  std::erase_if(store.damages, [&](const Damage& damage) { return damage.file == directory / kIndexFile; });
  for (const auto& [number, segment] : segments) {
    ScannedSegment& out = store.segments.emplace_back();
    platform::FileStatus status;
    const auto known = context.files.status(context.segment_files.path(number), status);
    if (!known && known.error != ENOENT) return;
    out.segment = number;
    out.bytes = known ? status.bytes : segment->bytes;  // one that somebody removed is missed by the next process
    out.end = segment->end;
    std::uint64_t living = 0;
    for (const auto& [offset, object] : segment->records) {
      out.records.push_back({object->head, object->history});
      living += object->head.record_bytes;
    }
    out.dead = out.end - std::min(out.end, kBlock + living);
  }
  const auto beside = directory / kNewIndexFile;
  const std::vector<std::byte> bytes = encode_index(store);
  const auto opened = context.files.open(beside, platform::Open::create, false);
  if (!opened) return;
  platform::SysResult written;
  {
    const platform::File file(context.files, static_cast<int>(opened.value), beside.string(), false);
    written = write_whole(context.files, file.fd(), bytes, 0);
    if (written && context.options.synced) written = context.files.sync(file.fd());
  }
  // Its name need not be on stable storage: where it is lost with the power, the segments say the same.
  if (written) written = context.files.rename(beside, directory / kIndexFile);
  static_cast<void>(context.files.remove(written ? directory / kOldIndexFile : beside));
}

}  // namespace ebb::storage
