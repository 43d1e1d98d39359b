// The application's copies, and its streams: what is enqueued there, and what is done once they get there.
#include <stdexcept>
#include <utility>

#include "store/engine.hpp"
#include "store/tokens.hpp"

namespace ebb::runtime {
namespace {

constexpr auto request_of = [](const auto& end) {
  return std::visit([](const auto& what) { return what.request; }, end);
};

}  // namespace

// The next of a request's own copies. A background request may be gone when it returns, unless the caller shares it.
void Engine::copy_own(Locked& locked, Request& request) {
  const policy::Command command = request.commands[request.next++];
  if (never(command)) {
    tell_limits(locked);
    return tell_end(locked, command.id, no_memory_error(command));
  }
  begin_moving(locked, command, true);
  const bool ring = command.from.at.kind == policy::Endpoint::ring || command.to.at.kind == policy::Endpoint::ring;
  // A slot of the ring is never held by a stream of the application, on which anything may come to stand.
  const bool enqueue = request.stream && !ring;
  if (enqueue && request.background) throw std::logic_error("a copy was ordered for a call that has returned");
  if (!enqueue) streams_.take(locked, request.own);
  const policy::Time begun = port_.now();
  const auto check = check_of(locked, command);
  if (check) moving_.at(command.id).comparison = std::make_shared<Comparison>(Comparison{check, {}});
  const bool compared_already = check && request.check == check;
  Result<void> result;
  bool followed = false, copied = false;
  std::optional<InFlight> copying(std::in_place, locked, lifetime_);
  if (check && !compared_already) {
    request.compared = compare_source(request, *check, enqueue);
    request.check = check;
  }
  if (check && !request.compared) {
    result = request.compared;  // nothing of it is handed out
  } else if (enqueue) {
    if (command.after != 0) result = machinery_->copies->come_after(*request.stream, command.after);
    if (result) result = enqueue_copies(request, command, *request.stream);
    copied = static_cast<bool>(result);
    std::optional<Error> refused;
    if (!result) refused = result.error();  // parts of it may be on the stream already
    result = machinery_->copies->follow(*request.stream, command.id, std::move(refused));
    followed = static_cast<bool>(result);
    if (!followed) streams_.finish_everything();
  } else {
    result = copy_at_once(request, command);
    copied = static_cast<bool>(result);
  }
  if (followed) copying->goes_on();  // until the stream has passed it
  copying.reset();
  sent(locked, command.id);
  request.copying += port_.now() - begun;
  if (request.stream && copied) count_enqueued(request, command);
  if (!followed && !lifetime_.closed(locked)) tell_end(locked, command.id, result);
}

bool Engine::has_work(const Locked& locked, const Request& request) const {
  if (lifetime_.closed(locked) || request.next == request.commands.size()) return false;
  const policy::Command& next = request.commands[request.next];
  return !unsent_.contains(next.after) && usable(next);
}

// Its copy is on a stream, or has ended: others can come after it.
void Engine::sent(const Locked& /*locked*/, policy::CommandId command) {
  if (unsent_.erase(command) == 0) return;
  for (auto& [id, request] : requests_) {
    if (request->next < request->commands.size() && request->commands[request->next].after == command) {
      request->changed.notify_one();
    }
  }
}

void Engine::count_enqueued(Request& request, const policy::Command& command) {
  std::uint64_t& end = request.ahead[command.offset];
  end = std::max(end, command.offset + command.length);
  for (auto first = request.ahead.begin(); first != request.ahead.end() && first->first <= request.enqueued;
       first = request.ahead.erase(first)) {
    request.enqueued = std::max(request.enqueued, first->second);
  }
}

Result<void> Engine::enqueue_copies(const Request& request, const policy::Command& command, platform::StreamId stream) {
  const bool writes = command.from.at.kind == policy::Endpoint::application;
  const Tiers& tiers = *machinery_->tiers;
  Result<void> result;
  for_each_part(request.pieces, command.offset, command.length,
                [&](std::byte* memory, std::uint64_t offset, std::size_t bytes) {
                  policy::Place from = command.from, to = command.to;
                  (writes ? to : from).offset += offset;
                  std::byte* const cache = tiers.at(writes ? to : from);
                  tiers.for_each_part(from, to, bytes, [&](std::uint64_t at, std::uint64_t length) {
                    if (!result) return;
                    result = writes ? tiers.device().copy(stream, cache + at, memory + at, length)
                                    : tiers.device().copy(stream, memory + at, cache + at, length);
                  });
                });
  return result;
}

// Without the mutex, before the first copy: on the stream that makes it.
Result<void> Engine::compare_source(Request& request, const Check& check, bool in_order) {
  if (in_order) return compare(check, *request.stream);
  if (streams_.host_memory()) return compare(check, platform::kInlineStream);
  const Result<void> made = request.stream ? streams_.make(request.own) : streams_.come_after_legacy(request.own);
  return made ? compare(check, request.own.made->stream) : made;
}

// Without the mutex. Returns when the bytes are there.
Result<void> Engine::copy_at_once(Request& request, const policy::Command& command) {
  platform::Device& device = *seams_.device;
  if (device.host_memory()) return enqueue_copies(request, command, platform::kInlineStream);
  Result<void> result = request.stream ? streams_.make(request.own) : streams_.come_after_legacy(request.own);
  if (!result) return result;
  result = enqueue_copies(request, command, request.own.made->stream);
  // Also when a part was refused: what was enqueued before it must not outlive this command.
  Result<void> ended = device.record(request.own.made->event, request.own.made->stream);
  if (ended)
    ended = device.wait(request.own.made->event);
  else
    streams_.finish_everything();
  return result ? ended : result;
}

// The caller is about to wait anyway: what it waits for may be that its stream has done what it held before.
void Engine::ask_ready(Locked& locked, Request& request) {
  request.asks_ready = true;
  const platform::StreamId stream = *request.stream;
  const transfer::Token token = kReady | request.id;
  lifetime_.begin(locked);
  locked.unlock();
  const Result<void> followed = machinery_->copies->follow(stream, token);
  locked.lock();
  if (followed) return;
  lifetime_.end(locked);
  request.refused = followed.error();  // nothing can be ordered on it: the call is given up
}

// An application's stream has got to where it was followed to.
void Engine::stream_ended(const Locked& locked, transfer::Token token, const Result<void>& result) {
  if (token & kReady) {
    const policy::RequestId request = token & ~kReady;
    const auto found = requests_.find(request);
    return port_.submit(locked, found == requests_.end() ? 0 : found->second->history, policy::event::Ready{request});
  }
  stream_done(locked, token & ~kHandedBack, result);
}

void Engine::stream_done(const Locked& locked, std::uint64_t key, const Result<void>& result) {
  const auto found = handed_back_.find(key);
  HandedBack& back = found->second;
  back.stream_done = true;
  if (back.check) digest_taken(*back.check);
  const policy::HistoryId history = back.history;
  const policy::RequestId request = request_of(back.end);
  if (auto* const commit = std::get_if<policy::event::Commit>(&back.end); commit != nullptr && result) {
    commit->in_use = back.held;
  } else if (commit != nullptr) {
    // What the application computed never was: the version was not written after all.
    catalog_.mark_lost(
        locked, history, back.version,
        {Errc::lost, catalog_.key_text(locked, history, back.version) +
                         " was taken in stream order, and its bytes never came: " + result.error().message});
    back.end = policy::event::Abandon{request};
  }
  const HandedBack::End end = back.end;
  const bool held = back.held;
  if (!held) handed_back_.erase(found);
  if (held && !std::holds_alternative<policy::event::Commit>(end)) {
    const auto* const release = std::get_if<policy::event::Release>(&end);
    // It ends with its handle: nothing ends by itself any more.
    return port_.submit(locked, history,
                        policy::event::Submit{.request = request, .keep = release != nullptr && release->keep});
  }
  std::visit([&](const auto& what) { port_.submit(locked, history, what); }, end);
}

// Feeds `end` once `stream` (if any) has done what is on it now. `held`: the memory is in use until let_go().
Result<void> Engine::hand_back(Locked& locked, Hold& hold, std::optional<platform::StreamId> stream,
                               HandedBack::End end, bool held, std::shared_ptr<Check> check) {
  const std::uint64_t key = next_hand_back_++;
  handed_back_.emplace(key, HandedBack{hold.history, hold.version, end, false, held, std::move(check)});
  if (held) hold.handed_back = key;
  const auto* const release = std::get_if<policy::event::Release>(&end);
  if (stream || (held && release != nullptr)) {
    port_.submit(
        locked, hold.history,
        policy::event::Submit{
            .request = request_of(end), .keep = release != nullptr && release->keep, .by_stream = stream.has_value()});
  }
  Result<void> followed;
  if (stream) {
    lifetime_.begin(locked);
    locked.unlock();
    followed = machinery_->copies->follow(*stream, kHandedBack | key);
    if (!followed) streams_.finish_everything();
    locked.lock();
    if (followed) return {};
    lifetime_.end(locked);
  }
  if (!lifetime_.closed(locked) && !port_.poisoned(locked)) stream_done(locked, key, followed);
  return followed;
}

void Engine::let_go(Hold& hold) {
  if (hold.handed_back == 0 || lifetime_.forked()) return;
  Locked locked = port_.lock();
  const auto found = handed_back_.find(hold.handed_back);
  hold.handed_back = 0;
  if (found == handed_back_.end() || lifetime_.closed(locked) || port_.poisoned(locked)) return;
  HandedBack& back = found->second;
  back.held = false;
  if (!back.stream_done) return;
  const policy::HistoryId history = back.history;
  const HandedBack::End end = back.end;
  handed_back_.erase(found);
  if (const auto* const commit = std::get_if<policy::event::Commit>(&end))
    return port_.submit(locked, history,
                        policy::event::Release{
                            .request = commit->request,
                        });
  std::visit([&](const auto& what) { port_.submit(locked, history, what); }, end);
}

}  // namespace ebb::runtime
