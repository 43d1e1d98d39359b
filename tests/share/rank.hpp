#pragma once
// Processes of a node's pool, as a store uses them, with real shared memory, sockets and files.
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <optional>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "share/node_storage.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::share::test {

using storage::Description;
using storage::ObjectId;

inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kChunk = kMiB;

// Folders of this test alone: shared memory, sockets, the store.
class Place {
 public:
  Place() {
    for (std::string* folder : {&memory_, &store_}) {
      *folder += "XXXXXX";
      EXPECT_NE(::mkdtemp(folder->data()), nullptr);
    }
  }
  virtual ~Place() {
    std::error_code ignored;
    std::filesystem::remove_all(memory_, ignored);
    std::filesystem::remove_all(store_, ignored);
  }
  virtual NodeSeams seams() const {
    const std::vector<std::filesystem::path> folders{memory_};
    return {std::make_shared<os::TmpfsSharedMemory>(memory_), std::make_shared<os::UnixSockets>(folders), folders};
  }
  std::filesystem::path directory() const { return std::filesystem::path(store_) / "run"; }
  std::filesystem::path shared() const { return memory_; }
  std::filesystem::path directory_of(const std::string& job) const { return std::filesystem::path(store_) / job; }
  // Names of pools that are there still.
  std::vector<std::string> pools() const {
    auto names = seams().memory->list().value();
    std::erase_if(names, [](const std::string& name) { return !is_pool_name(name); });
    return names;
  }

 private:
  std::string memory_ = "/dev/shm/ebbtide-test-", store_ = "/var/tmp/ebbtide-test-";
};

// A process's storage, used as a store uses it.
class Rank {
 public:
  Rank(const Place& place, std::uint64_t rank, std::uint64_t ranks, std::uint64_t budget, std::string job = "job-test",
       os::Files* files = nullptr, std::filesystem::path directory = {}, os::Clock* clock = nullptr) {
    NodeStorageOptions options;
    options.pool = {std::move(job), rank, ranks, budget, kChunk, false};
    options.store.directory = directory.empty() ? place.directory() : directory;
    options.store.capacity = 1024 * kMiB;
    auto opened = open_node_storage(
        place.seams(), files ? *files : files_, clock ? *clock : clock_, options,
        [this](storage::Token token, const Result<void>& result) {
          tell([&] { done_.insert_or_assign(token, result ? std::string("ok") : result.error().message); });
        },
        [this](ObjectId object, const Result<void>& result) {
          std::function<void()> act;
          tell([&] { act.swap(before_outcome_); });
          if (act) act();
          tell([&] {
            persisted_.insert_or_assign(object, result ? std::string("ok") : result.error().message);
            ended_.push_back(object);
          });
        },
        [this](ObjectId object, bool listed) { tell([&] { listed_[object] = listed; }); },
        [this](ObjectId object, const Error& error) {
          tell([&] { delayed_.insert_or_assign(object, error.message); });
        });
    if (!opened) {
      error_ = opened.error();
      return;
    }
    storage_ = std::move(*opened);
    memory_ = storage_->memory().cache_memory();
  }
  ~Rank() {
    if (storage_) storage_->stop();
  }
  NodeStorage& storage() { return *storage_; }
  const std::optional<Error>& error() const { return error_; }
  std::byte* memory() const { return memory_.get(); }
  void release() {
    memory_.reset();
    storage_.reset();
  }

  // Fills memory with the bytes of a version, and puts them in pieces.
  ObjectId write(const std::string& history, Version version, std::uint64_t bytes, std::uint64_t at = 0,
                 std::uint64_t salt = 0) {
    storage_->memory().claim(at + bytes).value();
    return write_from(memory_.get() + at, history, version, bytes, salt);
  }
  // The same with any memory.
  ObjectId write_from(std::byte* memory, const std::string& history, Version version, std::uint64_t bytes,
                      std::uint64_t salt = 0) {
    const ObjectId object = next_++;
    fill(memory, bytes, history, version, salt);
    Description description{history, version, {}};
    description.info.bytes = bytes;
    if (bytes > 0) description.info.regions = {{0, bytes, 0}};
    storage_->begin(object, std::make_shared<const Description>(description)).value();
    for (std::uint64_t offset = 0; offset < bytes; offset += 3 * kMiB / 4) {
      storage_->put(token_++, object, bytes, offset, memory + offset, std::min(3 * kMiB / 4, bytes - offset)).value();
    }
    return object;
  }
  void await_persisted(ObjectId object) { EXPECT_EQ(await_outcome(object), "ok"); }
  std::string await_outcome(ObjectId object) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return persisted_.contains(object); });
    return persisted_.at(object);
  }
  // Once, on the storage's own thread, before the next object's outcome is known.
  void before_next_outcome(std::function<void()> act) {
    tell([&] { before_outcome_ = std::move(act); });
  }
  // In the order in which they became durable, or failed.
  std::vector<ObjectId> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  // What became of the last transfer that was begun.
  std::string await_last_transfer() { return await_transfer(token_ - 1); }
  std::string await_transfer(storage::Token token) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(token); });
    return done_.at(token);
  }
  // Why it could not be written at first.
  std::string await_delayed(ObjectId object) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return delayed_.contains(object); });
    return delayed_.at(object);
  }
  bool listed(ObjectId object) {
    const std::lock_guard lock(mutex_);
    return listed_.contains(object) && listed_.at(object);
  }
  // What an earlier process left, all of it as it was written.
  std::map<std::pair<std::string, Version>, std::uint64_t> found() {
    std::map<std::pair<std::string, Version>, std::uint64_t> all;
    for (const storage::Found& one : storage_->found()) {
      EXPECT_TRUE(read(one.object, one.history, one.version, one.bytes)) << one.history << " " << one.version;
      all[{one.history, one.version}] = one.bytes;
    }
    return all;
  }
  // Whether an object has the bytes of a version.
  bool read(ObjectId object, const std::string& history, Version version, std::uint64_t bytes, std::uint64_t salt = 0) {
    std::vector<std::byte> got, wanted(bytes);
    const auto read = storage_->read_payload(object, [&](std::uint64_t, std::span<const std::byte> part) {
      got.insert(got.end(), part.begin(), part.end());
    });
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    fill(wanted.data(), bytes, history, version, salt);
    return got == wanted;
  }
  static void fill(std::byte* memory, std::uint64_t bytes, const std::string& history, Version version,
                   std::uint64_t salt) {
    std::uint64_t state = std::hash<std::string>()(history) + static_cast<std::uint64_t>(version) * 977 + salt;
    for (std::uint64_t i = 0; i + 8 <= bytes; i += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(memory + i, &state, 8);
    }
    for (std::uint64_t i = bytes / 8 * 8; i < bytes; ++i) memory[i] = static_cast<std::byte>(i);
  }

 private:
  void tell(const std::function<void()>& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  os::PosixFiles files_;
  os::SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<storage::Token, std::string> done_;
  std::map<ObjectId, std::string> persisted_;
  std::function<void()> before_outcome_;
  std::vector<ObjectId> ended_;
  std::map<ObjectId, bool> listed_;
  std::map<ObjectId, std::string> delayed_;
  std::unique_ptr<NodeStorage> storage_;
  std::shared_ptr<std::byte> memory_;
  std::optional<Error> error_;
  ObjectId next_ = storage::kFirstObject;
  storage::Token token_ = 1;
};

// Another process. Ends it at once when the function returns, as a kill would.
inline pid_t in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  return child;
}

inline int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Another process, made now, that does its work once it is told to: for tests that have threads by then. A fork beside
// threads copies the locks that they hold, and the address sanitizer does not release those of its allocator.
class LaterChild {
 public:
  explicit LaterChild(const std::function<void()>& work) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = in_child([&] {
      ::close(ends[1]);
      char word = 0;
      if (::read(ends[0], &word, 1) == 1) work();
    });
    ::close(ends[0]);
    go_ = ends[1];
  }
  ~LaterChild() {
    ::close(go_);
    if (begun_) return;
    ::kill(pid_, SIGKILL);
    status_of(pid_);
  }
  LaterChild(const LaterChild&) = delete;
  // The caller takes its status.
  pid_t begin() {
    begun_ = true;
    EXPECT_EQ(::write(go_, "g", 1), 1);
    return pid_;
  }

 private:
  pid_t pid_ = 0;
  int go_ = -1;
  bool begun_ = false;
};

}  // namespace ebb::share::test
