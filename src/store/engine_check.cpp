// commit(check): the memory's digest when it was committed, compared with that of every copy's source since.
#include "store/engine.hpp"

namespace ebb::runtime {

// Without the mutex. Nothing waits for it: the digest is there when `stream` (none: at once) has got here.
Result<std::shared_ptr<Check>> Engine::take_digest(const Hold& hold, const std::optional<platform::StreamId>& stream) {
  auto check = std::make_shared<Check>();
  check->data = hold.data;
  check->bytes = static_cast<std::size_t>(hold.info->bytes);
  auto place = machinery_->digests->take();
  if (!place) return place.error();
  check->place = std::move(*place);
  const auto taken =
      seams_.device->digest(stream.value_or(platform::kInlineStream), check->data, check->bytes, check->place.get());
  if (!taken) return taken.error();
  return check;
}

// The commit's stream has got there.
void Engine::digest_taken(Check& check) {
  check.taken = platform::sum_of(check.place.get());
  check.place.reset();
}

// What its source is to be compared with, if that is memory which was committed to be checked, and not another copy of
// the checkpoint. With the mutex held.
std::shared_ptr<const Check> Engine::check_of(const Locked& locked, const policy::Command& command) {
  if (command.from.at.kind != policy::Endpoint::tier || !port_.in_memory(command.from.at.index)) return nullptr;
  const Record* const record = catalog_.find(locked, command.checkpoint);
  if (record == nullptr || !record->check) return nullptr;
  return machinery_->tiers->at(command.from) - command.offset == record->check->data ? record->check : nullptr;
}

Error Engine::written_to() const {
  return {Errc::damaged,
          "its memory in the device cache was written to after it had been committed (its digest is not "
          "that of the commit)"};
}

// Without the mutex. The host waits for what `stream` holds, and for the digest.
Result<void> Engine::compare(const Check& check, platform::StreamId stream) {
  auto place = machinery_->digests->take();
  if (!place) return place.error();
  platform::Device& device = *seams_.device;
  if (auto asked = device.digest(stream, check.data, check.bytes, place->get()); !asked) return asked;
  if (stream != platform::kInlineStream) {
    const auto event = device.create_event();
    Result<void> done = event ? device.record(*event, stream) : Result<void>(event.error());
    if (done)
      done = device.wait(*event);
    else
      streams_.finish_everything();
    if (event) device.destroy_event(*event);
    if (!done) return done;
  }
  if (platform::sum_of(place->get()) == check.taken) return {};
  return written_to();
}

// What is borrowed is handed out as it is. The mutex is given up meanwhile.
Result<void> Engine::check_lent(Locked& locked, Request& request) {
  const Record* const record = catalog_.find(locked, request.answer.checkpoint);
  if (record == nullptr || !record->check || request.bytes == 0) return {};
  const auto check = record->check;
  if (machinery_->tiers->at(request.answer.place) != check->data) return {};
  streams_.take(locked, request.own);
  Result<void> result;
  {
    const InFlight comparing(locked, lifetime_);
    if (!streams_.host_memory()) result = streams_.come_after_legacy(request.own);
    if (result) result = compare(*check, request.own.made ? request.own.made->stream : platform::kInlineStream);
  }
  if (result || result.error().code != Errc::damaged) return result;
  return Error{Errc::damaged,
               catalog_.key_text(locked, request.history, request.version) + " is damaged: " + result.error().message};
}

// A copy between tiers has ended, and behind it the digest of its source: are these bytes what was committed?
Result<void> Engine::compared(const Locked& /*locked*/, policy::CommandId command) const {
  const auto found = moving_.find(command);
  if (found == moving_.end() || !found->second.comparison || !found->second.comparison->place) return {};
  const Comparison& comparison = *found->second.comparison;
  if (platform::sum_of(comparison.place.get()) == comparison.check->taken) return {};
  return written_to();
}

}  // namespace ebb::runtime
