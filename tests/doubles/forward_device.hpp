#pragma once
#include <memory>
#include <optional>
#include <utility>

#include "device/device.hpp"

namespace ebb::doubles {

/// Hands every call to another device. Tests override what they are about.
/// Thread safety: as of the other device.
class ForwardDevice : public device::Device {
 public:
  explicit ForwardDevice(std::shared_ptr<device::Device> inner) : inner_(std::move(inner)) {}

  std::string_view name() const noexcept override { return inner_->name(); }
  bool host_memory() const noexcept override { return inner_->host_memory(); }
  std::optional<int> gpu() const noexcept override { return inner_->gpu(); }
  Result<std::byte*> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void free(std::byte* memory, std::size_t bytes) noexcept override { inner_->free(memory, bytes); }
  Result<std::byte*> allocate_host(std::size_t bytes) override { return inner_->allocate_host(bytes); }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override { inner_->free_host(memory, bytes); }
  std::uint64_t free_bytes() noexcept override { return inner_->free_bytes(); }
  Result<std::byte*> reserve(std::size_t bytes) override { return inner_->reserve(bytes); }
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    return inner_->map(range, at, bytes);
  }
  std::size_t map_granule() const noexcept override { return inner_->map_granule(); }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override { inner_->unreserve(range, bytes); }
  Result<void> pin(std::byte* memory, std::size_t bytes) override { return inner_->pin(memory, bytes); }
  void unpin(std::byte* memory, std::size_t bytes) noexcept override { inner_->unpin(memory, bytes); }
  Result<device::StreamId> create_stream() override { return inner_->create_stream(); }
  void destroy_stream(device::StreamId stream) noexcept override { inner_->destroy_stream(stream); }
  Result<device::EventId> create_event() override { return inner_->create_event(); }
  void destroy_event(device::EventId event) noexcept override { inner_->destroy_event(event); }
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    return inner_->copy(stream, to, from, bytes);
  }
  Result<void> digest(device::StreamId stream, const void* memory, std::size_t bytes, device::Digest* parts) override {
    return inner_->digest(stream, memory, bytes, parts);
  }
  bool owns(const void* memory, std::size_t bytes) noexcept override { return inner_->owns(memory, bytes); }
  Result<void> zones(device::StreamId stream, const device::ZoneJob& job) override {
    return inner_->zones(stream, job);
  }
  bool capturing(device::StreamId stream) noexcept override { return inner_->capturing(stream); }
  bool foreign(device::StreamId stream) noexcept override { return inner_->foreign(stream); }
  Result<void> record(device::EventId event, device::StreamId stream) override { return inner_->record(event, stream); }
  Result<void> stream_wait(device::StreamId stream, device::EventId event) override {
    return inner_->stream_wait(stream, event);
  }
  Result<void> synchronize() override { return inner_->synchronize(); }
  device::EventState query(device::EventId event) noexcept override { return inner_->query(event); }
  Result<void> wait(device::EventId event) override { return inner_->wait(event); }
  void wait_any(std::span<const device::EventId> events, std::chrono::nanoseconds at_most) noexcept override {
    inner_->wait_any(events, at_most);
  }
  void interrupt() noexcept override { inner_->interrupt(); }
  void discard(void* memory, std::size_t bytes) noexcept override { inner_->discard(memory, bytes); }

 protected:
  const std::shared_ptr<device::Device> inner_;
};

}  // namespace ebb::doubles
