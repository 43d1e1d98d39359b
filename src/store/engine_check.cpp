// commit(check): the memory's digest when it was committed, compared with that of every copy's source since.
#include "store/engine.hpp"
#include "store/under_way.hpp"

namespace ebb::runtime {

DigestPlaces::Shared::~Shared() {
  for (platform::Digest* const place : idle) device->free_host(reinterpret_cast<std::byte*>(place), kBytes);
}

Result<DigestPlaces::Place> DigestPlaces::take() {
  platform::Digest* found = nullptr;
  {
    std::lock_guard lock(shared_->mutex);
    if (!shared_->idle.empty()) {
      found = shared_->idle.back();
      shared_->idle.pop_back();
    }
  }
  if (found == nullptr) {
    const Result<std::byte*> made = shared_->device->allocate_host(kBytes);
    if (!made) return made.error();
    found = reinterpret_cast<platform::Digest*>(*made);
  }
  return Place(found, [shared = shared_](platform::Digest* place) {
    std::lock_guard lock(shared->mutex);
    shared->idle.push_back(place);
  });
}

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
  if (command.from.at.kind != policy::Endpoint::tier || !in_memory(command.from.at.index)) return nullptr;
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
      finish_everything();
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
  take_stream(locked, request);
  Result<void> result;
  {
    const UnderWay comparing(locked, under_way_, closed_, machinery_->drained);
    if (!seams_.device->host_memory()) result = come_after_legacy(request);
    if (result) result = compare(*check, request.own ? request.own->stream : platform::kInlineStream);
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
