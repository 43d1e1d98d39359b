#include "tests/doubles/faulty_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <utility>

namespace ebb::doubles {
namespace {

constexpr int kPoison = 0xEB;

void poison(void* memory, std::uint64_t from, std::uint64_t to) {
  std::memset(static_cast<std::byte*>(memory) + from, kPoison, to - from);
}

}  // namespace

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{os::kBlock}); }
};
using Aligned = std::unique_ptr<std::byte, AlignedDelete>;

// What a cut write of a direct file writes: `reported` bytes of `memory`, then poison up to `moved`.
static Aligned cut_copy(const void* memory, std::uint64_t reported, std::uint64_t moved) {
  Aligned copy(static_cast<std::byte*>(::operator new(moved, std::align_val_t{os::kBlock})));
  std::memcpy(copy.get(), memory, reported);
  poison(copy.get(), reported, moved);
  return copy;
}

/// The ring of FaultyFiles: failing ops never reach the kernel, shortened ops reach it shortened, held ops
/// wait here.
/// Thread safety: as Ring. All of its own belongs to the owner; what is held is asked of FaultyFiles.
class FaultyRing final : public os::Ring {
 public:
  FaultyRing(FaultyFiles& files, std::unique_ptr<os::Ring> inner) : files_(files), inner_(std::move(inner)) {
    std::lock_guard lock(files_.mutex_);
    files_.rings_.push_back(this);
  }
  ~FaultyRing() override {
    std::lock_guard lock(files_.mutex_);
    std::erase(files_.rings_, this);
  }

  unsigned entries() const noexcept override { return inner_->entries(); }

  bool prepare(const os::RingOp& op) noexcept override {
    const FileCall call = op.write ? FileCall::write : FileCall::read;
    const FaultyFiles::Fate fate = files_.transfer(call, op.fd, op.offset, op.length, false);
    waiting_.push_back({op, fate, false, {}});
    return true;
  }

  os::SysResult wait(std::span<os::RingDone> out) noexcept override {
    pass_on();
    std::int64_t count = 0;
    while (!failed_.empty() && count < static_cast<std::int64_t>(out.size())) {
      out[count++] = failed_.front();
      failed_.pop_front();
    }
    if (count) return os::SysResult::of(count);
    const os::SysResult got = inner_->wait(out);
    if (!got) return got;
    for (os::RingDone& done : out.first(static_cast<std::size_t>(got.value))) settle(done);
    return got;
  }

  void wake() noexcept override { inner_->wake(); }

 private:
  struct Waiting {
    os::RingOp op;
    FaultyFiles::Fate fate;
    bool counted = false;  // as waiting
    Aligned cut{};         // written instead
  };

  void pass_on() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const FileCall call = it->op.write ? FileCall::write : FileCall::read;
      if (files_.holds(call, !it->counted)) {
        it->counted = true;
        ++it;
        continue;
      }
      os::RingOp op = it->op;
      if (it->fate.error) {
        failed_.push_back({op.tag, -it->fate.error});
      } else {
        op.length = static_cast<std::uint32_t>(it->fate.moved);
        if (op.write && it->fate.moved > it->fate.reported) {
          it->cut = cut_copy(op.memory, it->fate.reported, it->fate.moved);
          op.memory = it->cut.get();
        }
        if (!inner_->prepare(op)) return;
        passed_[op.tag] = std::move(*it);
      }
      it = waiting_.erase(it);
    }
  }

  void settle(os::RingDone& done) {
    auto node = passed_.extract(done.tag);
    const auto& [op, fate, counted, cut] = node.mapped();
    if (done.result != static_cast<std::int32_t>(fate.moved)) return;  // the kernel's own doing
    if (!op.write) poison(op.memory, fate.reported, fate.moved);
    done.result = static_cast<std::int32_t>(fate.reported);
  }

  FaultyFiles& files_;
  std::unique_ptr<os::Ring> inner_;
  std::deque<Waiting> waiting_;
  std::deque<os::RingDone> failed_;
  std::map<std::uint64_t, Waiting> passed_;
};

// --- faults ---

void FaultyFiles::add(FileCall call, Fault fault, std::uint64_t n, std::uint64_t times) {
  std::lock_guard lock(mutex_);
  fault.first = counts_[index(call)] + n;
  fault.last = times == kEver ? kEver : fault.first + times - 1;
  faults_[index(call)].push_back(fault);
}

void FaultyFiles::fail_nth(FileCall call, std::uint64_t n, int error, std::uint64_t times) {
  add(call, {0, 0, 1, error, {}}, n, times);
}

void FaultyFiles::shorten_nth(FileCall call, std::uint64_t n, std::uint64_t times, std::optional<std::uint64_t> bytes) {
  add(call, {0, 0, 1, 0, bytes}, n, times);
}

void FaultyFiles::fail_at_rate(FileCall call, double rate, int error) { add(call, {0, 0, rate, error, {}}, 1, kEver); }

void FaultyFiles::shorten_at_rate(FileCall call, double rate) { add(call, {0, 0, rate, 0, {}}, 1, kEver); }

void FaultyFiles::make_unreadable(const std::filesystem::path& path, std::uint64_t offset) {
  std::lock_guard lock(mutex_);
  unreadable_.emplace(path, offset);
}

void FaultyFiles::pretend(const os::FileSystem& file_system) {
  std::lock_guard lock(mutex_);
  pretended_ = file_system;
}

void FaultyFiles::clear_faults() {
  std::lock_guard lock(mutex_);
  for (auto& faults : faults_) faults.clear();
  unreadable_.clear();
}

void FaultyFiles::hold(FileCall call) {
  std::lock_guard lock(mutex_);
  held_[index(call)] = true;
}

void FaultyFiles::release(FileCall call) {
  std::lock_guard lock(mutex_);
  held_[index(call)] = false;
  waiting_[index(call)] = 0;
  changed_.notify_all();
  for (FaultyRing* ring : rings_) ring->wake();
}

void FaultyFiles::await_held(FileCall call, std::size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_[index(call)] >= n; });
}

// Whether a transfer is held; `more`: it is not counted as waiting yet.
bool FaultyFiles::holds(FileCall call, bool more) {
  std::lock_guard lock(mutex_);
  if (!held_[index(call)]) return false;
  if (more) {
    ++waiting_[index(call)];
    changed_.notify_all();
  }
  return true;
}

FaultyFiles::Fate FaultyFiles::decide_locked(FileRecord record) {
  const FileCall call = record.call;
  const int fd = record.fd;
  const std::uint64_t bytes = record.bytes;
  const std::uint64_t number = ++counts_[index(call)];
  Fate fate{0, bytes, bytes};
  for (const Fault& fault : faults_[index(call)]) {
    if (number < fault.first || number > fault.last) continue;
    if (fault.rate < 1 && std::uniform_real_distribution<>(0, 1)(random_) >= fault.rate) continue;
    if (fault.error) {
      fate.error = fault.error;
    } else if (bytes > 1) {
      fate.reported = std::min(bytes, fault.bytes ? *fault.bytes : 1 + random_() % (bytes - 1));
      // Part of a block cannot be moved directly: the rest of it is moved as poison.
      fate.moved = direct_.contains(fd) ? os::round_up(fate.reported) : fate.reported;
    }
    break;
  }
  if (const auto known = open_.find(fd); known != open_.end()) record.path = known->second;
  if (call == FileCall::read && !unreadable_.empty()) {
    const auto bad = unreadable_.lower_bound({record.path, record.offset});
    if (bad != unreadable_.end() && bad->first == record.path && bad->second < record.offset + bytes) fate.error = EIO;
  }
  record.result =
      fate.error ? os::SysResult::failed(fate.error) : os::SysResult::of(static_cast<std::int64_t>(fate.reported));
  records_.push_back(std::move(record));
  return fate;
}

int FaultyFiles::refused(const FileRecord& call) noexcept {
  std::lock_guard lock(mutex_);
  return decide_locked(call).error;
}

FaultyFiles::Fate FaultyFiles::transfer(FileCall call, int fd, std::uint64_t offset, std::uint64_t bytes,
                                        bool may_hold) noexcept {
  std::unique_lock lock(mutex_);
  const Fate fate = decide_locked({call, fd, offset, bytes, {}});
  if (may_hold && held_[index(call)]) {
    ++waiting_[index(call)];
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_[index(call)]; });
  }
  return fate;
}

// --- records ---

std::vector<FileRecord> FaultyFiles::records() const {
  std::lock_guard lock(mutex_);
  return records_;
}

std::uint64_t FaultyFiles::count(FileCall call) const {
  std::lock_guard lock(mutex_);
  return counts_[index(call)];
}

std::size_t FaultyFiles::open_files() const {
  std::lock_guard lock(mutex_);
  return open_.size();
}

// --- Files ---

os::SysResult FaultyFiles::opened(os::SysResult result, const std::filesystem::path& path, bool direct) noexcept {
  if (!result) return result;
  std::lock_guard lock(mutex_);
  open_[static_cast<int>(result.value)] = path;
  if (direct) direct_.insert(static_cast<int>(result.value));
  return result;
}

os::SysResult FaultyFiles::open_unlinked(const Path& directory, bool direct) noexcept {
  return opened(ForwardFiles::open_unlinked(directory, direct), directory, direct);
}

os::SysResult FaultyFiles::open(const Path& path, os::Open how, bool direct) noexcept {
  return opened(ForwardFiles::open(path, how, direct), path, direct);
}

os::SysResult FaultyFiles::lock(const Path& path, os::Open how) noexcept {
  return opened(ForwardFiles::lock(path, how), path, false);
}

// As with the system's close, the descriptor is gone even when the call fails.
int FaultyFiles::forget(int fd) noexcept {
  const int error = refused({FileCall::close, fd});
  std::lock_guard lock(mutex_);
  open_.erase(fd);
  direct_.erase(fd);
  return error;
}

os::SysResult FaultyFiles::close(int fd) noexcept {
  const int error = forget(fd);
  const os::SysResult closed = inner_.close(fd);
  return error ? os::SysResult::failed(error) : closed;
}

os::SysResult FaultyFiles::unlock(int fd) noexcept {
  const int error = forget(fd);
  const os::SysResult unlocked = inner_.unlock(fd);
  return error ? os::SysResult::failed(error) : unlocked;
}

os::SysResult FaultyFiles::read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept {
  const Fate fate = transfer(FileCall::read, fd, offset, bytes, true);
  if (fate.error) return os::SysResult::failed(fate.error);
  const os::SysResult got = inner_.read(fd, memory, fate.moved, offset);
  if (!got || got.value != static_cast<std::int64_t>(fate.moved)) return got;
  poison(memory, fate.reported, fate.moved);
  return os::SysResult::of(static_cast<std::int64_t>(fate.reported));
}

os::SysResult FaultyFiles::write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept {
  const Fate fate = transfer(FileCall::write, fd, offset, bytes, true);
  if (fate.error) return os::SysResult::failed(fate.error);
  Aligned cut;
  if (fate.moved > fate.reported) cut = cut_copy(memory, fate.reported, fate.moved);
  const os::SysResult put = inner_.write(fd, cut ? cut.get() : memory, fate.moved, offset);
  if (!put || put.value != static_cast<std::int64_t>(fate.moved)) return put;
  return os::SysResult::of(static_cast<std::int64_t>(fate.reported));
}

os::SysResult FaultyFiles::describe(const Path& directory, os::FileSystem& out) noexcept {
  return around({FileCall::describe, -1, 0, 0, {}, directory}, [&] {
    {
      std::lock_guard lock(mutex_);
      if (pretended_) {
        out = *pretended_;
        return os::SysResult::of(0);
      }
    }
    return inner_.describe(directory, out);
  });
}

Result<std::unique_ptr<os::Ring>> FaultyFiles::open_ring(unsigned entries) {
  if (const int error = refused({FileCall::open_ring, -1, 0, entries})) {
    return Error{Errc::unsupported, "io_uring is refused: " + os::describe_errno(error)};
  }
  Result<std::unique_ptr<os::Ring>> inner = inner_.open_ring(entries);
  if (!inner) return inner;
  return std::unique_ptr<os::Ring>(std::make_unique<FaultyRing>(*this, std::move(*inner)));
}

}  // namespace ebb::doubles
