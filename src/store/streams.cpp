#include "store/streams.hpp"

#include <utility>

namespace ebb::store {

using GivenStream = std::optional<device::StreamId>;

Result<GivenStream> Streams::resolve(const std::optional<StreamHandle>& given) const {
  if (device_->host_memory()) {
    if (!given) return GivenStream();
    return Error{Errc::unsupported,
                 "stream= needs a store on a GPU: this one's device is \"" + std::string(device_->name()) + "\""};
  }
  const GivenStream stream = !given ? GivenStream() : *given == 0 ? device::kLegacyStream : device::StreamId{*given};
  if (device_->capturing(stream.value_or(device::kLegacyStream))) {
    return Error{Errc::unsupported, stream
                                        ? "the stream is being captured into a graph: its copies would become part of "
                                          "that graph; call outside the capture"
                                        : "a stream is being captured into a graph: a call without stream= would be "
                                          "ordered on the legacy default stream and spoil the capture"};
  }
  if (stream && device_->foreign(*stream)) {
    return Error{Errc::invalid_argument, "stream= belongs to another GPU than the store's device \"" +
                                             std::string(device_->name()) + "\": give a stream of that one"};
  }
  return stream;
}

Result<void> Streams::check(const std::optional<StreamHandle>& given) const {
  if (!given) return {};
  const auto stream = resolve(given);
  return stream ? Result<void>() : Result<void>(stream.error());
}

Result<GivenStream> Streams::resolve_hand_back(const std::optional<StreamHandle>& given) const {
  auto stream = resolve(given);
  if (stream && !*stream && !device_->host_memory()) *stream = device::kLegacyStream;
  return stream;
}

void Streams::take(const Locked& /*locked*/, CallStream& own) {
  if (own.made || idle_.empty()) return;
  own.made = idle_.back();
  idle_.pop_back();
}

void Streams::put(const Locked& /*locked*/, CallStream& own) {
  if (own.made) idle_.push_back(*std::exchange(own.made, std::nullopt));
}

Result<void> Streams::make(CallStream& own) {
  if (own.made) return {};
  const auto stream = device_->create_stream();
  if (!stream) return stream.error();
  const auto event = device_->create_event();
  if (!event) {
    device_->destroy_stream(*stream);
    return event.error();
  }
  own.made = {*stream, *event};
  return {};
}

Result<void> Streams::come_after_legacy(CallStream& own) {
  if (own.after_legacy) return {};
  Result<void> result = make(own);
  if (result) result = device_->record(own.made->event, device::kLegacyStream);
  if (result) result = device_->stream_wait(own.made->stream, own.made->event);
  own.after_legacy = static_cast<bool>(result);
  return result;
}

void Streams::finish(device::StreamId stream) {
  const auto event = device_->create_event();
  Result<void> done = event ? device_->record(*event, stream) : Result<void>(event.error());
  if (done) done = device_->wait(*event);
  if (event) device_->destroy_event(*event);
  if (!done) finish_everything();
}

bool Streams::finish_unordered() {
  if (device_->host_memory()) return true;
  const Result<void> done = device_->synchronize();
  if (!done) unfinished_ = true;
  if (!done) log_.warning("memory of the device cache is lost until the store is closed: " + done.error().message);
  return static_cast<bool>(done);
}

void Streams::destroy(Locked& locked) {
  const std::vector<CallStream::Made> idle = std::exchange(idle_, {});
  locked.unlock();
  for (const CallStream::Made& one : idle) {  // one may still wait for what the legacy default stream held
    device_->destroy_stream(one.stream);
    device_->destroy_event(one.event);
  }
  if (unfinished_.exchange(false)) finish_everything();
  locked.lock();
}

}  // namespace ebb::store
