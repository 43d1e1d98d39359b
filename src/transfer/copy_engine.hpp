#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "transfer/token.hpp"

namespace ebb::transfer {

/// A part of a copy that no border between pinned pieces of host memory cuts: devices refuse those that one does.
struct Part {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// Memory whose digest is computed behind a copy, on its stream.
struct Digested {
  const void* memory = nullptr;
  std::size_t bytes = 0;
  platform::Digest* parts = nullptr;  ///< as of Device::digest()
};

/// Copies between memories, each link a stream of the device; one thread reports what is done.
///
/// Thread safety: submit(), follow(), come_after() and pending() may be called from any thread; stop() and the
/// destructor from one.
/// 1. Copies of one link happen and are reported in the order submitted, what one thread follows on one stream in the
///    order followed; between links, streams and threads as they really end.
/// 2. Every submit(), and every follow() that succeeds, is followed by exactly one `done`, also when the device refuses
/// the copy.
/// 3. `done` is called with no lock held; when it is called the target may be read and the source overwritten.
class CopyEngine {
 public:
  /// `links` streams, numbered from 0. `device` must outlive the engine. Error: the device's, or
  /// out_of_memory when its thread cannot be started.
  static Result<std::unique_ptr<CopyEngine>> create(platform::Device& device, unsigned links, Done done);
  /// Stops.
  ~CopyEngine();

  void submit(unsigned link, Token token, void* to, const void* from, std::size_t bytes);
  /// One copy in parts, reported once; with `digested`, when that is there as well.
  void submit(unsigned link, Token token, std::span<const Part> parts, const std::optional<Digested>& digested = {});
  /// Reports `token` when what is enqueued on `stream` so far is done: any stream of the device, the application's too.
  /// With `refused`, that is what it reports then. Error: the device's; `token` is then not reported.
  Result<void> follow(platform::StreamId stream, Token token, std::optional<Error> refused = {});
  /// What is enqueued on `stream` from now on comes after what `token` was submitted or followed for. Nothing to do
  /// when that has been reported. Error: how it failed, or the device's.
  Result<void> come_after(platform::StreamId stream, Token token);
  /// Submitted or followed, and not yet reported.
  std::size_t pending() const;
  /// Reports all that is under way, then joins. Later submits throw std::logic_error. May be called twice.
  void stop();

 private:
  struct State;
  explicit CopyEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ebb::transfer
