// The storage of a kept store by itself, with small segments.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "reliability/cpp/subject.hpp"
#include "storage/segments/file_transfers.hpp"

namespace ebb::trials {
namespace {

using storage::ObjectId;

constexpr std::uint32_t kBlockBytes = 8192;
constexpr std::size_t kRange = 65'536;
constexpr std::uint64_t kSegment = 512 << 10;
constexpr std::uint64_t kAlign = 256;

storage::Description describe(const Made& made) {
  storage::Description out{made.history, made.version, {}};
  std::uint32_t id = 0;
  for (const std::size_t bytes : regions_of(made.bytes)) {
    const std::uint64_t offset = (out.info.bytes + kAlign - 1) / kAlign * kAlign;
    out.info.regions.push_back({id++, bytes, offset});
    out.info.bytes = offset + bytes;
  }
  out.info.metadata = "take " + std::to_string(made.take);
  return out;
}

/// Thread safety: `kept` and `done` come on the storage's threads; all else from one.
class StorageSubject final : public Subject {
 public:
  StorageSubject(std::shared_ptr<os::Files> files, Told told) : files_(std::move(files)), told_(std::move(told)) {}
  ~StorageSubject() override {
    if (storage_) storage_->stop();
  }

  Result<void> open(const SubjectOptions& options) {
    storage::PersistentOptions kept;
    kept.directory = options.directory;
    kept.capacity = options.capacity;
    kept.synced = options.synced;
    kept.readonly = options.readonly;
    kept.direct = options.direct;
    kept.block_bytes = kBlockBytes;
    kept.segment_bytes = kSegment;
    kept.sync_interval = std::chrono::milliseconds(1);
    kept.engine.kind =
        options.ring ? transfer::FileEngineOptions::Kind::automatic : transfer::FileEngineOptions::Kind::threads;
    kept.engine.threads = 2;
    auto opened = storage::open_persistent_storage(
        *files_, clock_, kept, [this](storage::Token token, Result<void> how) { done(token, std::move(how)); },
        [this](ObjectId id, const Result<void>& how) { told(id, how); });
    if (!opened) return opened.error();
    storage_ = std::move(*opened);
    for (const storage::Found& one : storage_->found()) objects_[{one.history, one.version}] = one.object;
    return {};
  }

  Result<void> write(const Made& made, const Bytes& contents) override {
    const auto description = std::make_shared<const storage::Description>(describe(made));
    const ObjectId id = next_++;
    {
      std::lock_guard lock(mutex_);
      names_[id] = made;
    }
    if (auto begun = storage_->begin(id, description); !begun) return begun;
    objects_[{made.history, made.version}] = id;
    const std::uint64_t total = description->info.bytes;
    storage::AlignedBytes payload(total);
    std::fill_n(payload.data(), payload.size(), std::byte{0});
    std::size_t from = 0;
    for (const RegionInfo& region : description->info.regions) {
      std::copy_n(contents.data() + from, region.bytes, payload.data() + region.offset);
      from += region.bytes;
    }
    Result<void> all;
    std::vector<storage::Token> tokens;
    for (std::uint64_t at = 0; at < total; at += kRange) {
      const storage::Token token = next_token_++;
      auto taken =
          storage_->put(token, id, total, at, payload.data() + at, std::min<std::uint64_t>(kRange, total - at));
      if (taken)
        tokens.push_back(token);
      else if (all)
        all = taken;
    }
    for (const storage::Token token : tokens) {
      if (auto how = await(token); !how && all) all = how;
    }
    return all;
  }

  Result<void> wait(const std::string& history, Version version) override {
    const auto found = objects_.find({history, version});
    if (found == objects_.end()) return Error{Errc::unknown_version, "it was never begun"};
    if (found->second < storage::kFirstObject) return {};
    storage_->commit();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return kept_.contains(found->second); });
    return kept_.at(found->second);
  }

  Result<void> drop(const std::string& history, Version version) override {
    const auto found = objects_.find({history, version});
    if (found == objects_.end()) return {};
    storage_->drop(found->second);
    objects_.erase(found);
    return {};
  }

  std::vector<Version> versions(const std::string& history) override {
    std::vector<Version> out;
    for (const auto& [name, id] : objects_) {
      if (name.first == history) out.push_back(name.second);
    }
    return out;
  }

  Result<Bytes> read(const std::string& history, Version version) override {
    const auto found = objects_.find({history, version});
    if (found == objects_.end()) return Error{Errc::unknown_version, "there is none"};
    auto description = storage_->load_description(found->second);
    if (!description) return description.error();
    const CheckpointInfo& info = (*description)->info;
    storage::AlignedBytes payload(info.bytes);
    std::fill_n(payload.data(), payload.size(), std::byte{0x55});
    for (std::uint64_t at = 0; at < info.bytes; at += kRange) {
      const storage::Token token = next_token_++;
      const std::size_t bytes = std::min<std::uint64_t>(kRange, info.bytes - at);
      if (auto taken = storage_->get(token, found->second, at, payload.data() + at, bytes); !taken)
        return taken.error();
      if (auto how = await(token); !how) return how.error();
    }
    Bytes out;
    for (const RegionInfo& region : info.regions) {
      out.insert(out.end(), payload.data() + region.offset, payload.data() + region.offset + region.bytes);
    }
    return out;
  }

  Result<std::optional<Version>> latest(const std::string& history) override {
    std::vector<Version> all = versions(history);
    while (!all.empty()) {
      const Version newest = all.back();
      if (auto intact = storage_->verify(objects_.at({history, newest})); intact) return std::optional(newest);
      all.pop_back();
    }
    return std::optional<Version>();
  }

  Result<void> close() override {
    storage_->stop();
    storage_.reset();
    return {};
  }

 private:
  void done(storage::Token token, Result<void> how) {
    std::lock_guard lock(mutex_);
    results_.emplace(token, std::move(how));
    changed_.notify_all();
  }
  void told(ObjectId id, const Result<void>& how) {
    Made name;
    {
      std::lock_guard lock(mutex_);
      name = names_.at(id);
    }
    if (told_ && name.history != "settle") told_(name, how);
    std::lock_guard lock(mutex_);
    kept_.emplace(id, how);
    changed_.notify_all();
  }
  Result<void> await(storage::Token token) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return results_.contains(token); });
    return std::move(results_.extract(token).mapped());
  }

  const std::shared_ptr<os::Files> files_;
  const Told told_;
  os::SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<storage::Token, Result<void>> results_;
  std::map<ObjectId, Result<void>> kept_;
  std::map<ObjectId, Made> names_;
  std::map<std::pair<std::string, Version>, ObjectId> objects_;
  ObjectId next_ = storage::kFirstObject;
  storage::Token next_token_ = 1;
  std::unique_ptr<storage::PersistentStorage> storage_;
};

}  // namespace

std::vector<std::size_t> regions_of(std::size_t bytes) {
  if (bytes <= 1000) return {bytes};
  return {bytes / 3, bytes - bytes / 3};
}

Result<std::unique_ptr<Subject>> open_storage_subject(std::shared_ptr<os::Files> files, const SubjectOptions& options,
                                                      Told told) {
  auto subject = std::make_unique<StorageSubject>(std::move(files), std::move(told));
  if (auto opened = subject->open(options); !opened) return opened.error();
  return std::unique_ptr<Subject>(std::move(subject));
}

std::string_view name_of(Layer layer) {
  return layer == Layer::storage ? "storage" : layer == Layer::store ? "store" : "snapshots";
}

Result<std::unique_ptr<Subject>> open_subject(std::shared_ptr<os::Files> files, const SubjectOptions& options,
                                              Told told) {
  if (options.layer == Layer::storage) return open_storage_subject(std::move(files), options, std::move(told));
  return open_store_subject(std::move(files), options);
}

}  // namespace ebb::trials
