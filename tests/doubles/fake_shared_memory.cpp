#include "tests/doubles/fake_shared_memory.hpp"

#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include "os/sys_result.hpp"

namespace ebb::doubles {
namespace {

class FaultySharedFile final : public os::SharedFile {
 public:
  FaultySharedFile(os::OwnDescriptor descriptor, const std::string& name, std::weak_ptr<void> named,
                   std::shared_ptr<CallFaults<SharedCall>> faults)
      : inner_(std::move(descriptor), name), named_(std::move(named)), faults_(std::move(faults)) {}
  bool named() const override { return !named_.expired(); }
  Result<std::uint64_t> size() const override {
    return guarded(SharedCall::size, [&] { return inner_.size(); });
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> into) const override {
    return guarded(SharedCall::read, [&] { return inner_.read(offset, into); });
  }
  Result<void> allocate(os::FileRange range) override {
    return guarded(SharedCall::allocate, [&] { return inner_.allocate(range); });
  }
  Result<os::SharedMapping> map(std::span<const os::FileRange> ranges) override {
    return guarded(SharedCall::map, [&] { return inner_.map(ranges); });
  }
  Result<void> punch(os::FileRange range) override {
    return guarded(SharedCall::punch, [&] { return inner_.punch(range); });
  }
  Result<void> hold(const os::ProcessId& user) override {
    return guarded(SharedCall::hold, [&] { return inner_.hold(user); });
  }
  Result<bool> held(const os::ProcessId& user) const override {
    return guarded(SharedCall::held, [&] { return inner_.held(user); });
  }

 private:
  template <class Whole>
  std::invoke_result_t<Whole> guarded(SharedCall call, Whole&& whole) const {
    if (const int error = faults_->next(call)) return os::system_error("the double refuses", error);
    return whole();
  }
  mutable os::DescriptorSharedFile inner_;
  const std::weak_ptr<void> named_;
  std::shared_ptr<CallFaults<SharedCall>> faults_;
};

}  // namespace

FakeSharedMemory::~FakeSharedMemory() {
  for (const auto& [name, file] : files_) ::close(file.fd);
}

std::optional<Error> FakeSharedMemory::refused(SharedCall call, const std::string& name) {
  if (auto named = os::check_shared_name(name); !named) return named.error();
  if (const int error = faults_->next(call)) return os::system_error("the double refuses \"" + name + "\"", error);
  return {};
}

std::unique_ptr<os::SharedFile> FakeSharedMemory::opened(const Named& file, const std::string& name) {
  // Opened anew, as each process does: a copy of the descriptor would share its locks.
  const std::string path = "/proc/self/fd/" + std::to_string(file.fd);
  os::OwnDescriptor copy([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (!copy) throw std::runtime_error("no descriptor for the double");
  return std::make_unique<FaultySharedFile>(std::move(copy), name, file.name, faults_);
}

Result<std::unique_ptr<os::SharedFile>> FakeSharedMemory::open(const std::string& name) {
  if (auto error = refused(SharedCall::open, name)) return *error;
  std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end()) return std::unique_ptr<os::SharedFile>();
  return opened(found->second, name);
}

Result<std::unique_ptr<os::SharedFile>> FakeSharedMemory::create(const std::string& name) {
  if (auto error = refused(SharedCall::create, name)) return *error;
  std::lock_guard lock(mutex_);
  if (files_.contains(name)) return std::unique_ptr<os::SharedFile>();
  const int fd = ::memfd_create(name.substr(0, 32).c_str(), MFD_CLOEXEC);
  if (fd < 0) throw std::runtime_error("no memory file for the double");
  const Named& file = files_[name] = {fd};
  return opened(file, name);
}

Result<void> FakeSharedMemory::remove(const std::string& name) {
  if (auto error = refused(SharedCall::remove, name)) return *error;
  std::lock_guard lock(mutex_);
  if (const auto found = files_.find(name); found != files_.end()) {
    ::close(found->second.fd);
    files_.erase(found);
  }
  return {};
}

Result<std::vector<std::string>> FakeSharedMemory::list() {
  if (auto error = refused(SharedCall::list, "all")) return *error;
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace ebb::doubles
