#pragma once
// Memory of other processes that a store uses for a while.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ebbtide/error.hpp"

namespace ebb::device {
class Device;
}  // namespace ebb::device

namespace ebb::share {

/// Thread safety: every method may be called from any thread.
class LeaseSource {
 public:
  virtual ~LeaseSource() = default;
  /// Told, on a thread of the source, that memory of another process is lent to this one, or is to be returned; that it
  /// is lent, again: what its lender allows has changed. It must not wait.
  using LeaseNews = std::function<void(std::uint32_t lease, bool lent)>;
  /// From now on the process takes leases. Empty: no more, and what is not in use is returned.
  virtual void borrow(LeaseNews news) = 0;
  virtual std::uint64_t lease_bytes(std::uint32_t lease) const = 0;
  /// Whose it is, and what this process may use of that one's bandwidth, in millionths.
  struct Terms {
    std::uint32_t lender = 0;  // a number; 0: it is not known
    std::uint32_t link = 1'000'000;
    // Whose own link copies between it, while it is mapped, and the host can take; null: they take this process's, as
    // where there is an error.
    Result<std::shared_ptr<device::Device>> owner = std::shared_ptr<device::Device>();
  };
  virtual Terms terms(std::uint32_t /*lease*/) const { return {}; }
  /// The memory of a lease, mapped as long as the pointer is held.
  virtual Result<std::shared_ptr<std::byte>> use_lease(std::uint32_t lease) = 0;
  /// Another process may use it: it is not mapped or registered here, and no transfer of it is under way.
  virtual void return_lease(std::uint32_t lease) = 0;
  /// As return_lease(), of a lease that could not be used: its lender is not to try again.
  virtual void refuse_lease(std::uint32_t lease) { return_lease(lease); }
};

}  // namespace ebb::share
