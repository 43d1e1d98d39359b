#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "transfer/token.hpp"

namespace ebb::transfer {

/// A part of a copy that crosses no border between pinned pieces of host memory: devices refuse copies that do.
struct Part {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// Memory whose digest is computed after a copy, on its stream.
struct Digested {
  const void* memory = nullptr;
  std::size_t bytes = 0;
  device::Digest* parts = nullptr;  ///< as of Device::digest()
};

/// Copies between memories, with a device stream for each link; one thread reports what has completed.
///
/// Thread safety: submit(), follow(), come_after() and pending() may be called from any thread; stop() and the
/// destructor from one.
/// 1. Copies of one link happen and are reported in the order submitted, and what one thread follows on one stream in
///    the order followed; between links, streams and threads, in the order in which they complete.
/// 2. Every submit(), and every follow() that succeeds, is followed by exactly one `done`, also when the device refuses
///    the copy.
/// 3. `done` is called with no lock held; from then on the target may be read and the source overwritten.
class CopyEngine {
 public:
  /// `links` streams, numbered from 0. `device` must outlive the engine. Error: the device's, or
  /// out_of_memory when its thread cannot be started.
  static Result<std::unique_ptr<CopyEngine>> create(device::Device& device, unsigned links, Done done);
  /// Stops.
  ~CopyEngine();

  void submit(unsigned link, Token token, void* to, const void* from, std::size_t bytes);
  /// One copy in parts, reported once; with `digested`, when the digest is complete too.
  void submit(unsigned link, Token token, std::span<const Part> parts, const std::optional<Digested>& digested = {});
  /// Reports `token` when the present work of `stream` is done: any stream of the device, also the application's. With
  /// `refused`, that is the result it then reports. Error: the device's; `token` is then not reported.
  Result<void> follow(device::StreamId stream, Token token, std::optional<Error> refused = {});
  /// Orders the later work of `stream` after the work that `token` was submitted or followed for. Does nothing if that
  /// was reported already. Error: how it failed, or the device's.
  Result<void> come_after(device::StreamId stream, Token token);
  /// Submitted or followed, and not reported yet.
  std::size_t pending() const;
  /// Reports everything in flight, then joins. Later submits throw std::logic_error. May be called twice.
  void stop();

 private:
  struct Impl;
  explicit CopyEngine(std::unique_ptr<Impl> state);
  std::unique_ptr<Impl> state_;
};

}  // namespace ebb::transfer
