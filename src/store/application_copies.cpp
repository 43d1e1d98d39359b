#include "store/application_copies.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <utility>

#include "store/cache_memory.hpp"
#include "store/call_table.hpp"
#include "store/catalog.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/verifier.hpp"

namespace ebb::store {

namespace {

// Copies on one stream, of which the device gets many at a time.
class Gathered {
 public:
  Gathered(device::Device& device, device::StreamId stream) : device_(device), stream_(stream) {}
  void add(const device::BareCopy& part) {
    parts_[count_++] = part;
    if (count_ == parts_.size()) send();
  }
  /// The first error.
  Result<void> end() {
    send();
    return std::move(result_);
  }

 private:
  void send() {
    const auto parts = std::span(parts_).first(std::exchange(count_, 0));
    if (result_) result_ = device_.copy_all(stream_, parts);
  }

  device::Device& device_;
  const device::StreamId stream_;
  std::array<device::BareCopy, 128> parts_;
  std::size_t count_ = 0;
  Result<void> result_;
};

}  // namespace

void ApplicationCopies::copy_next(Locked& locked, CallRow& request) {
  const planner::Command command = request.commands[request.next++];
  if (memory_.never(command)) {
    memory_.submit_limits(locked);
    return queues_.complete(locked, command.id, memory_.no_memory_error(command));
  }
  const bool ring = command.from.at.kind == planner::Endpoint::ring || command.to.at.kind == planner::Endpoint::ring;
  const bool enqueue = request.stream && !ring;
  if (enqueue && request.background) throw std::logic_error("a copy was ordered for a call that has returned");
  auto check = verifier_.check_of(locked, command);
  queues_.begin_move(locked, command, true,
                     check ? std::make_shared<Comparison>(Comparison{check, {}}) : std::shared_ptr<Comparison>());
  if (!enqueue) streams_.take(locked, request.own);
  const planner::Time begun = port_.now();
  Made made;
  {
    InFlight copying(locked, lifetime_);
    if (check && request.compared.with != check) {
      request.compared.result = verifier_.compare_source(request, *check, enqueue);
      request.compared.with = check;
    }
    if (check && !request.compared.result)
      made.result = request.compared.result;  // nothing of it is handed out
    else
      made = make(request, command, enqueue);
    if (made.enqueued) copying.goes_on();  // until the stream has passed it
  }
  calls_.set_sent(locked, command.id);
  request.copying += port_.now() - begun;
  if (request.stream && made.copied) request.enqueued.count(command);
  if (made.enqueued || lifetime_.closed(locked)) return;
  // No other try and no other tier can help.
  if (made.refused != nullptr && !request.wrong) {
    request.wrong = refusal(locked, request, command, made.refused);
    port_.submit(locked, request.history, planner::event::Cancel{request.id});
  }
  queues_.complete(locked, command.id, made.result);
}

Error ApplicationCopies::refusal(const Locked& locked, const CallRow& request, const planner::Command& command,
                                 const std::byte* memory) const {
  const auto piece = std::ranges::find_if(
      request.pieces, [&](const PlacedRegion& one) { return memory >= one.memory && memory < one.memory + one.bytes; });
  const bool writes = command.from.at.kind == planner::Endpoint::application;
  const Record* const record = catalog_.find(locked, command.checkpoint);
  const auto info = request.info || record == nullptr ? request.info : record->info;
  return prefixed(catalog_.key_text(locked, request.history, request.version),
                  unusable_memory(info->regions[region_index(*info, *piece)].id, writes));
}

// Without the mutex, as all below.
ApplicationCopies::Made ApplicationCopies::make(CallRow& request, const planner::Command& command, bool enqueue) {
  if (!enqueue) {
    Made made;
    made.result = copy_at_once(request, command, made.refused);
    made.copied = static_cast<bool>(made.result);
    return made;
  }
  transfer::CopyEngine& engine = queues_.copies();
  Result<void> result;
  if (command.after != 0) result = engine.come_after(*request.stream, command.after);
  const std::byte* refused_memory = nullptr;
  if (result) result = enqueue_parts(request, command, *request.stream, refused_memory);
  const bool copied = static_cast<bool>(result);
  std::optional<Error> refused;
  if (!result) refused = result.error();  // parts of it may be on the stream already
  result = engine.follow(*request.stream, command.id, std::move(refused));
  const bool followed = static_cast<bool>(result);
  if (!followed) streams_.finish_everything();
  return {std::move(result), followed, copied, nullptr};
}

Result<void> ApplicationCopies::enqueue_parts(const CallRow& request, const planner::Command& command,
                                              device::StreamId stream, const std::byte*& refused) {
  const bool writes = command.from.at.kind == planner::Endpoint::application;
  const Tiers& tiers = memory_.tiers();
  std::byte* const cache = tiers.at(writes ? command.to : command.from);
  const auto for_each = [&](auto&& copy) {
    tiers.for_each_part(command.from, command.to, command.length, [&](std::uint64_t begin, std::uint64_t length) {
      for_each_part(request.pieces, command.offset + begin, length,
                    [&](std::byte* memory, std::uint64_t offset, std::size_t bytes) {
                      std::byte* const cached = cache + begin + offset;
                      copy(writes ? device::BareCopy{cached, memory, bytes} : device::BareCopy{memory, cached, bytes},
                           memory);
                    });
    });
  };
  Gathered gathered(tiers.device(), stream);
  for_each([&](const device::BareCopy& part, const std::byte*) { gathered.add(part); });
  Result<void> result = gathered.end();
  if (result || stream != device::kInlineStream) return result;
  result = {};  // each by itself says whose memory it was
  for_each([&](const device::BareCopy& part, const std::byte* memory) {
    if (!result) return;
    result = tiers.device().copy(stream, part.to, part.from, part.bytes);
    if (!result) refused = memory;
  });
  return result;
}

// Returns when the bytes are there.
Result<void> ApplicationCopies::copy_at_once(CallRow& request, const planner::Command& command,
                                             const std::byte*& refused) {
  if (streams_.host_memory()) return enqueue_parts(request, command, device::kInlineStream, refused);
  Result<void> result = request.stream ? streams_.make(request.own) : streams_.come_after_legacy(request.own);
  if (!result) return result;
  const CallStream::Made& own = *request.own.made;
  result = enqueue_parts(request, command, own.stream, refused);
  // Also when a part was refused: what was enqueued before it must not outlive this command.
  device::Device& device = streams_.device();
  Result<void> ended = device.record(own.event, own.stream);
  if (ended)
    ended = device.wait(own.event);
  else
    streams_.finish_everything();
  return result ? ended : result;
}

}  // namespace ebb::store
