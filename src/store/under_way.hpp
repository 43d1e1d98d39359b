#pragma once
#include <condition_variable>
#include <cstddef>

namespace ebb::runtime {

/// Something that is under way without the engine's mutex, for as long as this lasts: close() waits for its end, also
/// when that is an exception. Begins and ends with the mutex held.
template <class Lock>
class UnderWay {
 public:
  UnderWay(Lock& lock, std::size_t& count, const bool& closed, std::condition_variable& drained)
      : lock_(lock), count_(count), closed_(closed), drained_(drained) {
    ++count_;
    lock_.unlock();
  }
  UnderWay(const UnderWay&) = delete;
  ~UnderWay() {
    lock_.lock();
    if (goes_on_) return;
    --count_;
    if (closed_) drained_.notify_all();
  }
  /// Somebody else will see its end.
  void goes_on() { goes_on_ = true; }

 private:
  Lock& lock_;
  std::size_t& count_;
  const bool& closed_;
  std::condition_variable& drained_;
  bool goes_on_ = false;
};

}  // namespace ebb::runtime
