#include "os/own_descriptors.hpp"

#include <algorithm>
#include <pthread.h>
#include <unistd.h>

namespace ebb::os {

// Never destroyed: descriptors may be closed while the process exits.
OwnDescriptors& OwnDescriptors::of_process() {
  static OwnDescriptors& all = *new OwnDescriptors;
  return all;
}

OwnDescriptors::OwnDescriptors() : process_(::getpid()) {
  ::pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                   [] {
                     OwnDescriptors& all = of_process();
                     for (const int fd : all.fds_) ::close(fd);
                     all.fds_.clear();
                     all.process_ = ::getpid();
                     all.mutex_.unlock();
                   });
}

int OwnDescriptors::open(const std::function<int()>& open) {
  std::lock_guard lock(mutex_);
  fds_.reserve(fds_.size() + 1);
  const int fd = open();
  if (fd >= 0) fds_.push_back(fd);
  return fd;
}

// A child made by a bare system call ran no fork handler: it still has the parent's list, and must not unlock.
bool OwnDescriptors::close(int fd, const std::function<void()>& before) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(fds_, fd);
  if (found == fds_.end() || process_ != ::getpid()) return false;
  fds_.erase(found);
  before();
  ::close(fd);
  return true;
}

}  // namespace ebb::os
