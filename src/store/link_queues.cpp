#include "store/link_queues.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "storage/file_io.hpp"
#include "store/cache_memory.hpp"
#include "store/call_table.hpp"
#include "store/catalog.hpp"
#include "store/hand_backs.hpp"
#include "store/lifetime.hpp"
#include "store/persistence.hpp"
#include "store/tokens.hpp"
#include "store/verifier.hpp"

namespace ebb::store {

namespace {

// On whose streams a link's copies are made. What touches the application's device is made on its own, so that the
// application's streams can be ordered after it.
device::Device* device_of(const options::Seams& seams, const planner::Machine& machine, const planner::LinkSpec& link) {
  device::Device* const from = seams.device_of(link.from).get();
  device::Device* const to = seams.device_of(link.to).get();
  const auto is_host = [&](planner::NodeIndex node) {
    return std::ranges::none_of(machine.tiers, [&](const planner::TierSpec& tier) {
      return tier.node == node && tier.medium != planner::Medium::host;
    });
  };
  device::Device* const own = seams.device.get();
  if (from == own && is_host(link.from)) return to;
  if (to == own && is_host(link.to)) return from;
  return from == to ? from : own;
}

}  // namespace

Result<void> LinkQueues::create(const options::Seams& seams) {
  const planner::Machine& machine = port_.machine();
  struct Streams {
    device::Device* device;
    std::vector<Lane*> lanes;
  };
  std::vector<Streams> devices{{seams.device.get(), {}}};  // the application's first
  lanes_.resize(machine.links.size());
  for (std::size_t l = 0; l < machine.links.size(); ++l) {
    const planner::LinkSpec& link = machine.links[l];
    if (planner::on_file(machine, link.from) || planner::on_file(machine, link.to)) continue;
    device::Device* const device = device_of(seams, machine, link);
    if (link.from == planner::kApplication || link.to == planner::kApplication) {  // the calls' own
      if (device == seams.device.get()) continue;
      return Error{Errc::unsupported,
                   "the link " + link.name + " joins the application with another device than its own"};
    }
    auto found = std::ranges::find(devices, device, &Streams::device);
    if (found == devices.end()) found = devices.insert(found, {device, {}});
    found->lanes.push_back(&lanes_[l]);
    if (link.to == planner::kHost) lanes_[l].of_host = 0;
    if (link.from == planner::kHost) lanes_[l].of_host = 1;
  }
  for (const auto& [device, lanes] : devices) {
    auto engine = transfer::CopyEngine::create(
        *device, static_cast<unsigned>(lanes.size()),
        [this](transfer::Token token, const Result<void>& result) { on_done(token, result); });
    if (!engine) return engine.error();
    for (std::size_t stream = 0; stream < lanes.size(); ++stream) {
      lanes[stream]->engine = engine->get();
      lanes[stream]->stream = static_cast<unsigned>(stream);
    }
    engines_.push_back(std::move(*engine));
  }
  return {};
}

Result<void> LinkQueues::add_owner(const std::shared_ptr<device::Device>& device) {
  const auto known = [&] { return std::ranges::find(owners_, device, &Owner::device) != owners_.end(); };
  {
    const Locked locked = port_.lock();
    if (known()) return {};
  }
  auto engine = transfer::CopyEngine::create(
      *device, 2, [this](transfer::Token token, const Result<void>& result) { on_done(token, result); });
  if (!engine) return engine.error();
  const Locked locked = port_.lock();
  if (!lifetime_.running(locked)) return lifetime_.closed_error();
  owners_.push_back({device, std::move(*engine)});
  return {};
}

void LinkQueues::set_files() {
  const planner::Machine& machine = port_.machine();
  for (const auto& tier : files_.tiers()) {
    const planner::NodeIndex node = machine.tiers[static_cast<std::size_t>(tier->index())].node;
    for (std::size_t l = 0; l < lanes_.size(); ++l)
      if (machine.links[l].from == node || machine.links[l].to == node) lanes_[l].apart = tier->apart();
  }
}

void LinkQueues::stop() {
  engines_.clear();
  owners_.clear();
}

void LinkQueues::add(const Locked& /*locked*/, const planner::Command& command) {
  lanes_.at(static_cast<std::size_t>(command.link)).queue.push_back(command);
  ++queued_;
}

void LinkQueues::clear(const Locked& /*locked*/) {
  for (Lane& lane : lanes_) lane.queue.clear();
  queued_ = 0;
}

bool LinkQueues::ready(const Locked& /*locked*/, const Lane& lane) const {
  return !lane.draining && !lane.queue.empty() && memory_.usable(lane.queue.front());
}

bool LinkQueues::has_ready(const Locked& locked) const {
  if (queued_ == 0 || !lifetime_.running(locked)) return false;  // nothing is handed over any more
  for (const Lane& lane : lanes_) {
    if (ready(locked, lane)) return true;
  }
  return false;
}

// --- handing over --------------------------------------------------------------------------------------------------

void LinkQueues::drain(Locked& locked) {
  for (std::size_t link = 0; link < lanes_.size();) {
    if (queued_ == 0 || !lifetime_.running(locked)) return;
    if (ready(locked, lanes_[link]) && lanes_[link].apart != nullptr) {
      drain_apart(locked, lanes_[link++]);
    } else if (ready(locked, lanes_[link])) {
      drain_lane(locked, lanes_[link]);
      link = 0;  // what was refused may have ordered anything
    } else {
      ++link;
    }
  }
}

// No caller waits for a directory that does not answer.
void LinkQueues::drain_apart(const Locked& locked, Lane& lane) {
  lane.draining = true;
  lifetime_.begin(locked, 1);
  lane.apart->post([this, &lane] {
    Locked held = port_.lock();
    lane.draining = false;
    try {
      if (lifetime_.running(held) && ready(held, lane)) drain_lane(held, lane);
      drain(held);
    } catch (const std::exception& error) {
      port_.poison(held, error);
    }
    lifetime_.end(held);
  });
}

void LinkQueues::drain_lane(Locked& locked, Lane& lane) {
  for (; !lane.queue.empty() && memory_.usable(lane.queue.front()); lane.queue.pop_front(), --queued_) {
    lane.orders.push_back(prepare(locked, lane, lane.queue.front()));
  }
  lane.draining = true;
  lifetime_.begin(locked, lane.orders.size() + 1);
  locked.unlock(Locked::Wake::nothing);
  Failures refused;
  std::optional<std::string> broken;
  std::map<storage::ObjectId, Error> not_begun;
  for (Handover& order : lane.orders) {
    try {
      if (const auto found = not_begun.find(order.object); found != not_begun.end()) order.refused = found->second;
      Result<void> taken = describe(order);
      if (taken) taken = hand_over(lane, order);
      if (!taken) refused.emplace_back(order.command.id, taken.error());
      if (!taken && (order.description || order.described != nullptr)) not_begun.emplace(order.object, taken.error());
    } catch (const std::exception& error) {  // the planner asked for what cannot be, or there is no memory to do it
      refused.emplace_back(order.command.id, Error{Errc::io_error, error.what()});
      broken = error.what();
    }
  }
  locked.lock();
  if (broken) port_.poison(locked, *broken);
  lifetime_.end(locked, refused.size() + 1);
  lane.draining = false;
  for (const Handover& order : lane.orders) calls_.set_sent(locked, order.command.id);
  if (!refused.empty() && lifetime_.running(locked)) memory_.submit_limits(locked);
  for (const Handover& order : lane.orders) {
    const auto failed = not_begun.find(order.object);
    if (failed == not_begun.end()) continue;
    Record* const record = catalog_.find(locked, order.command.checkpoint);
    FileObject* const object = record == nullptr ? nullptr : &record->files[order.file->number()].object;
    if (object != nullptr && object->id == order.object)
      object->refused = std::make_unique<const Error>(failed->second);
  }
  lane.orders.clear();
  for (const auto& [command, error] : refused) {
    if (lifetime_.running(locked)) complete(locked, command, error);
  }
}

bool LinkQueues::in_file(const planner::Place& place) const {
  return place.at.kind == planner::Endpoint::tier && !port_.in_memory(place.at.index);
}

// Storages read and write whole blocks of memory.
bool LinkQueues::needs_bounce(const planner::Place& place, const planner::Command& command) const {
  return place.at.kind == planner::Endpoint::tier && command.total < os::kBlock &&
         port_.machine().tiers[static_cast<std::size_t>(place.at.index)].grain != 0;
}

LinkQueues::Handover LinkQueues::prepare(const Locked& locked, const Lane& lane, const planner::Command& command) {
  Handover order;
  order.command = command;
  order.put = in_file(command.to);
  if (lane.engine == nullptr) {
    order.file = &files_.tiers().at((order.put ? command.to : command.from).at.index);
    const std::size_t file = order.file->number();
    Record* const record = catalog_.find(locked, command.checkpoint);
    const bool added = record != nullptr && files_.objects().name(locked, *record, file);
    if (record == nullptr || (added && !order.put)) {
      const std::string broken = "a checkpoint was read from a file that it was never written to";
      port_.poison(locked, broken);
      throw std::logic_error(broken);
    }
    if (added) {
      order.description = files_.tiers().describe(locked, catalog_, *record);
      // What an earlier process left may have been asked for by no call yet.
      if (const auto found = record->info ? std::nullopt : record->recovered_in()) {
        order.described = files_.tiers()[*found].get();
        order.described_as = record->files[*found].recovered;
        order.sequence = files_.tiers().take_sequence(locked);
      }
      // A record that begins after the drop would count as newer than what was written anew meanwhile.
      if (files_.tiers().size() > 1 && !catalog_.live(locked, *record))
        order.refused = Error{Errc::dropped, "it was dropped"};
      if (order.description || order.described != nullptr) files_.objects().set_pending(locked, *record, file);
    }
    const FileObject& object = record->files[file].object;
    order.object = object.id;
    if (object.refused) order.refused = *object.refused;
    if (needs_bounce(order.put ? command.from : command.to, command)) {
      if (auto block = storage::AlignedBytes::make(os::kBlock))
        order.bounce = std::make_shared<storage::AlignedBytes>(std::move(*block));
      else
        order.refused =
            Error{Errc::out_of_memory, "no memory for a block of 4096 bytes on its way to a file or from it"};
    }
  }
  // Before anything of it is used, and once more when the last of it has been read.
  if (command.offset == 0 || command.offset + command.length == command.total) {
    if (auto check = verifier_.check_of(locked, command)) {
      order.comparison = std::make_shared<Comparison>(Comparison{std::move(check), {}});
    }
  }
  choose_engine(locked, lane, order);
  begin_move(locked, command, lane.engine != nullptr, order.comparison, order.bounce);
  return order;
}

// Digests are computed where the application's memory is.
void LinkQueues::choose_engine(const Locked& locked, const Lane& lane, Handover& order) const {
  order.engine = lane.engine;
  order.stream = lane.stream;
  if (!lane.of_host || order.comparison) return;
  for (const planner::Place* place : {&order.command.from, &order.command.to}) {
    const device::Device* const device = memory_.owner(locked, *place);
    const auto owner = std::ranges::find(owners_, device, [](const Owner& one) { return one.device.get(); });
    if (owner == owners_.end()) continue;
    order.engine = owner->engine.get();
    order.stream = *lane.of_host;
  }
}

Result<void> LinkQueues::describe(Handover& order) const {
  if (order.described == nullptr || order.refused) return {};
  auto read = order.described->persistent()->load_description(order.described_as);
  if (!read) return read.error();
  auto description = std::make_shared<storage::Description>(**read);
  description->sequence = order.sequence;
  order.description = std::move(description);
  return {};
}

Result<void> LinkQueues::hand_over(Lane& lane, const Handover& order) {
  if (memory_.never(order.command)) return memory_.no_memory_error(order.command);
  return lane.engine != nullptr ? hand_over_copy(lane, order) : hand_over_to_file(order);
}

Result<void> LinkQueues::hand_over_copy(Lane& lane, const Handover& order) {
  const Tiers& tiers = memory_.tiers();
  const planner::Command& command = order.command;
  lane.parts.clear();
  tiers.for_each_part(command.from, command.to, command.length, [&](std::uint64_t offset, std::uint64_t bytes) {
    lane.parts.push_back({tiers.at(command.to) + offset, tiers.at(command.from) + offset, bytes});
  });
  if (!order.comparison) {
    order.engine->submit(order.stream, command.id, lane.parts);
    return {};
  }
  auto place = verifier_.place();
  if (!place) return place.error();
  order.comparison->place = std::move(*place);
  const Check& check = *order.comparison->check;
  order.engine->submit(order.stream, command.id, lane.parts,
                       transfer::Digested{check.data, check.bytes, order.comparison->place.get()});
  return {};
}

Result<void> LinkQueues::hand_over_to_file(const Handover& order) {
  const Tiers& tiers = memory_.tiers();
  const planner::Command& command = order.command;
  if (order.refused) return *order.refused;
  std::byte* memory = tiers.at(order.put ? command.from : command.to);
  if (order.bounce && order.put) {
    std::memcpy(order.bounce->data(), memory, command.length);
    std::memset(order.bounce->data() + command.length, 0, order.bounce->size() - command.length);
  }
  if (order.bounce) memory = order.bounce->data();
  if (!order.put)
    return order.file->storage().get(command.id, order.object, command.from.offset, memory, command.length);
  if (order.comparison) {  // from ordinary memory
    if (auto same = verifier_.compare(*order.comparison->check, device::kInlineStream); !same) return same;
  }
  if (order.description) {
    if (auto begun = order.file->persistent()->begin(order.object, order.description); !begun) return begun;
  }
  return order.file->storage().put(command.id, order.object, command.total, command.to.offset, memory, command.length);
}

// --- completion ----------------------------------------------------------------------------------------------------

void LinkQueues::begin_move(const Locked& /*locked*/, const planner::Command& command, bool copies,
                            std::shared_ptr<Comparison> comparison, std::shared_ptr<storage::AlignedBytes> bounce) {
  moving_.try_emplace(command.id, Moving{command, copies, std::move(comparison), std::move(bounce)});
  if (copies) memory_.tiers().begin_copy(command);
}

void LinkQueues::complete(const Locked& locked, planner::CommandId command, const Result<void>& result) {
  calls_.set_sent(locked, command);
  planner::event::Failed failed{.command = command};
  const auto found = moving_.find(command);
  if (!result) failed.cause = cause_of(locked, found == moving_.end() ? nullptr : &found->second, result.error());
  if (found != moving_.end()) {
    const Moving& moving = found->second;
    if (result && moving.bounce && in_file(moving.command.from))
      std::memcpy(memory_.tiers().at(moving.command.to), moving.bounce->data(), moving.command.length);
    if (moving.copies) memory_.tiers().end_copy(moving.command);
    moving_.erase(found);
  }
  if (result)
    port_.submit(locked, 0, planner::event::Finished{command});
  else
    port_.submit(locked, 0, failed);
}

// What an error said is kept for the checkpoint's future. `moving` null: the command never began.
planner::event::Failed::Cause LinkQueues::cause_of(const Locked& locked, const Moving* moving, const Error& error) {
  using planner::event::Failed;
  const bool reads = moving != nullptr && in_file(moving->command.from);
  if (Record* const record = moving == nullptr ? nullptr : catalog_.find(locked, moving->command.checkpoint)) {
    record->trouble = std::make_unique<const Error>(error);
    if (moving->comparison && error.code == Errc::damaged) {
      record->written_to = true;
      return Failed::source;
    }
  }
  if (error.code == (reads ? Errc::out_of_memory : Errc::no_space)) return Failed::no_room;
  if (reads && (error.code == Errc::damaged || error.code == Errc::unknown_version)) return Failed::source;
  // The program's memory is gone: no other try can read it.
  if (moving != nullptr && Tiers::adopted(moving->command.from) && !in_file(moving->command.to)) return Failed::source;
  return Failed::passing;
}

void LinkQueues::on_done(transfer::Token token, const Result<void>& result) {
  Locked locked = port_.lock();
  lifetime_.end(locked);
  if (lifetime_.closed(locked)) return;
  try {
    if (token & kReady) {
      calls_.stream_ready(locked, token & ~kReady);
    } else if (token & kHandedBack) {
      hand_backs_.stream_done(locked, token & ~kHandedBack, result);
    } else {
      // Behind a copy comes the digest of its source: are these bytes what was committed?
      const auto found = moving_.find(token);
      const Comparison* const digested = result && found != moving_.end() ? found->second.comparison.get() : nullptr;
      const bool compare = digested != nullptr && digested->place;
      complete(locked, token, compare ? Verifier::compared(*digested->check, digested->place) : result);
    }
    drain(locked);
    files_.trouble().write(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

void LinkQueues::on_memory() {
  Locked locked = port_.lock();
  if (!lifetime_.opened(locked) || !lifetime_.running(locked)) return;
  try {
    memory_.submit_limits(locked);
    calls_.wake_requests(locked);
    drain(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

void LinkQueues::on_carried(transfer::Token token) {
  Locked locked = port_.lock();
  if (!lifetime_.running(locked)) return;
  try {
    port_.submit(locked, 0, planner::event::Carried{token});
    drain(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

}  // namespace ebb::store
