#include "storage/scratch/scratch_file.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "storage/preallocator.hpp"
#include "storage/scratch/extent_allocator.hpp"

namespace ebb::storage {
namespace {

using os::kBlock;
using os::round_up;
using transfer::Direction;
using transfer::Piece;

/// Thread safety: as Storage.
/// 1. mutex_ guards allocator, objects and transfers; neither the engine nor `done` is called with it held.
/// 2. An object's extents change only in the first put() and in drop(), which in_flight > 0 forbids: so they stay valid
///    until its transfers are reported.
class ScratchFile final : public Storage {
 public:
  ScratchFile(os::Files& files, os::File file, std::string where, std::uint64_t capacity, Done done)
      : where_(std::move(where)),
        file_(std::move(file)),
        done_(std::move(done)),
        allocator_(capacity),
        space_(files, file_, capacity) {}
  ~ScratchFile() override { ScratchFile::stop(); }

  // Second half of construction, because it can fail.
  Result<void> start(os::Files& files, const transfer::FileEngineOptions& options) {
    Result<std::unique_ptr<transfer::FileEngine>> engine = transfer::make_file_engine(
        files, options, [this](Token token, Result<void> how) { finish(token, std::move(how)); });
    if (!engine) return engine.error();
    engine_ = std::move(*engine);
    return {};
  }
  int space_refusal() const { return space_.refusal(); }

  Result<void> put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override {
    std::vector<Piece> pieces;
    std::uint64_t end = 0;
    {
      std::lock_guard lock(mutex_);
      auto found = objects_.find(id);
      if (found == objects_.end()) {
        std::optional<std::vector<Extent>> extents = allocator_.allocate(round_up(total));
        if (!extents) {
          return Error{Errc::no_space, "no space for an object of " + std::to_string(total) + " bytes in the file in " +
                                           where_ + ": " + std::to_string(allocator_.free_bytes()) + " of " +
                                           std::to_string(allocator_.capacity()) + " bytes are free"};
        }
        for (const Extent& extent : *extents) end = std::max(end, extent.offset + extent.length);
        found = objects_.emplace(id, Object{std::move(*extents), total, 0}).first;
      }
      if (found->second.total != total) throw std::logic_error("an object's total changed between two puts");
      // The engine only reads memory when it writes files.
      pieces = begin_locked(token, id, found->second, offset, const_cast<std::byte*>(memory), bytes);
    }
    if (end) space_.use_up_to(end);
    engine_->submit(token, Direction::write, file_, pieces);
    return {};
  }

  Result<void> get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) override {
    std::vector<Piece> pieces;
    {
      std::lock_guard lock(mutex_);
      const auto found = objects_.find(id);
      if (found == objects_.end()) throw std::logic_error("a get of an object never put");
      pieces = begin_locked(token, id, found->second, offset, memory, bytes);
    }
    engine_->submit(token, Direction::read, file_, pieces);
    return {};
  }

  void drop(ObjectId id) override {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end()) return;
    if (found->second.in_flight) throw std::logic_error("an object with transfers in flight was dropped");
    for (const Extent& extent : found->second.extents) allocator_.free(extent);
    objects_.erase(found);
  }

  StorageUse use() const override {
    std::lock_guard lock(mutex_);
    StorageUse use{allocator_.capacity(), allocator_.capacity() - allocator_.free_bytes(), objects_.size(), 0,
                   allocator_.largest_gap()};
    for (const auto& [id, object] : objects_) use.extents += object.extents.size();
    return use;
  }

  std::string describe() const override {
    return "one file in " + where_ + ", " + (file_.direct() ? "O_DIRECT" : "buffered") + ", " +
           std::string(engine_->name()) + ", " + space_.state();
  }

  void stop() override {
    if (engine_) engine_->stop();
  }

 private:
  struct Object {
    std::vector<Extent> extents;
    std::uint64_t total = 0;
    std::size_t in_flight = 0;
  };

  std::vector<Piece> begin_locked(Token token, ObjectId id, Object& object, std::uint64_t offset, std::byte* memory,
                                  std::size_t bytes) {
    if (offset % kBlock || offset > object.total || bytes > object.total - offset) {
      throw std::logic_error("a range outside its object, or not aligned to 4096");
    }
    if (!transfers_.emplace(token, id).second) throw std::logic_error("a token was used while it was in flight");
    ++object.in_flight;
    std::vector<Piece> pieces;
    for (const Extent& extent : object.extents) {
      if (bytes == 0) break;
      if (offset >= extent.length) {
        offset -= extent.length;
        continue;
      }
      const std::size_t part = std::min<std::uint64_t>(bytes, extent.length - offset);
      pieces.push_back({extent.offset + offset, memory, part});
      memory += part;
      bytes -= part;
      offset = 0;
    }
    return pieces;
  }

  void finish(Token token, Result<void> how) {
    {
      std::lock_guard lock(mutex_);
      const auto found = transfers_.find(token);
      --objects_.at(found->second).in_flight;
      transfers_.erase(found);
    }
    done_(token, std::move(how));
  }

  const std::string where_;  // "the directory '/scratch' (ext4)"
  const os::File file_;
  const Done done_;
  mutable std::mutex mutex_;
  ExtentAllocator allocator_;
  std::unordered_map<ObjectId, Object> objects_;
  std::unordered_map<Token, ObjectId> transfers_;
  Preallocator space_;                            // destroyed before the file
  std::unique_ptr<transfer::FileEngine> engine_;  // destroyed first
};

Error refused(Errc code, const std::string& where, const std::string& why) {
  return {code, "cannot keep checkpoints in " + where + ": " + why};
}

}  // namespace

Result<std::unique_ptr<Storage>> open_scratch_file(os::Files& files, const ScratchOptions& options, Done done) {
  std::string where = "the directory '";
  where.append(options.directory.string()).append("'");
  os::FileSystem file_system;
  if (const auto found = files.describe(options.directory, file_system); !found) {
    return refused(Errc::io_error, where, os::describe_errno(found.error));
  }
  where.append(" (").append(file_system.kind).append(")");
  if (file_system.in_memory) {
    return refused(Errc::unsupported, where, "it is in memory; name a directory on a disk");
  }
  const std::uint64_t capacity = options.capacity / kBlock * kBlock;
  if (capacity > file_system.free_bytes) {
    return refused(
        Errc::no_space, where,
        std::to_string(capacity) + " bytes are asked for and " + std::to_string(file_system.free_bytes) + " are free");
  }
  const os::SysResult opened = files.open_unlinked(options.directory, options.direct);
  if (opened.error == EINVAL && options.direct) {
    return refused(Errc::unsupported, where, "it has no O_DIRECT; open with direct_io off");
  }
  if (!opened) return refused(Errc::io_error, where, os::describe_errno(opened.error));
  os::File file(files, static_cast<int>(opened.value), "the file in " + options.directory.string(), options.direct);
  if (const auto sized = files.truncate(file.fd(), capacity); !sized) {
    return refused(sized.error == ENOSPC || sized.error == EFBIG ? Errc::no_space : Errc::io_error, where,
                   "a file of " + std::to_string(capacity) + " bytes: " + os::describe_errno(sized.error));
  }
  auto storage = std::make_unique<ScratchFile>(files, std::move(file), where, capacity, std::move(done));
  if (storage->space_refusal() == ENOSPC || storage->space_refusal() == EDQUOT) {
    return refused(Errc::no_space, where, os::describe_errno(storage->space_refusal()));
  }
  if (Result<void> started = storage->start(files, options.engine); !started) {
    return refused(started.error().code, where, started.error().message);
  }
  return std::unique_ptr<Storage>(std::move(storage));
}

}  // namespace ebb::storage
