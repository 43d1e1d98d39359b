#pragma once
#include <cstddef>
#include <memory>
#include <optional>

#include "ebbtide/error.hpp"
#include "platform/device.hpp"
#include "transfer/token.hpp"

namespace ebb::transfer {

/// Copies between memories, each link a stream of the device; one thread reports what is done.
///
/// Thread safety: submit(), follow() and pending() may be called from any thread; stop() and the destructor from one.
/// 1. Copies of one link happen and are reported in the order submitted; between links as they really end.
/// 2. Every submit(), and every follow() that succeeds, is followed by exactly one `done`, also when the device refuses the copy.
/// 3. `done` is called with no lock held; when it is called the target may be read and the source overwritten.
class CopyEngine {
 public:
  /// `links` streams, numbered from 0. `device` must outlive the engine. Error: the device's.
  static Result<std::unique_ptr<CopyEngine>> create(platform::Device& device, unsigned links, Done done);
  /// Stops.
  ~CopyEngine();

  void submit(unsigned link, Token token, void* to, const void* from, std::size_t bytes);
  /// Reports `token` when what is enqueued on `stream` so far is done: any stream of the device, the application's too.
  /// With `refused`, that is what it reports then. Error: the device's; `token` is then not reported.
  Result<void> follow(platform::StreamId stream, Token token, std::optional<Error> refused = {});
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
