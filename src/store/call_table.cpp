#include "store/call_table.hpp"

#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/call_statistics.hpp"
#include "store/lifetime.hpp"

namespace ebb::store {

// --- requests ------------------------------------------------------------------------------------------------------

void CallTable::enter(CallRow& request) {
  request.id = next_request_++;
  request.started = port_.now();
  requests_.emplace(request.id, &request);
  request.commands.swap(spare_commands_);
}

void CallTable::leave(CallRow& request) {
  requests_.erase(request.id);
  request.commands.clear();
  request.next = 0;
  if (spare_commands_.capacity() == 0) request.commands.swap(spare_commands_);
}

CallTable::Entered::Entered(CallTable& table, const Locked& locked, CallRow& request)
    : table_(table), locked_(locked), request_(request) {
  table.enter(request);
}

CallTable::Entered::~Entered() {
  if (detached_) return;
  table_.streams_.put(locked_, request_.own);
  table_.leave(request_);
}

void CallTable::Entered::detach(std::shared_ptr<CallRow> request, std::shared_ptr<Waitable> waitable) {
  detached_ = true;
  request->background = true;
  request->waitable = std::move(waitable);
  table_.background_.emplace(request_.id, std::move(request));
}

void CallTable::add_background(const Locked& /*locked*/, std::shared_ptr<CallRow> request) {
  request->background = true;
  enter(*request);
  background_.emplace(request->id, std::move(request));
}

void CallTable::end(const Locked& locked, Waitable& waitable) {
  waitable.ended = true;
  if (waitable.kept) port_.let_go(locked, std::move(waitable.kept));
}

void CallTable::end_background(const Locked& locked, CallRow& request) {
  const bool writes = request.waitable && !request.waitable->background;
  if (request.answer.reason != planner::Reason::ok || request.wrong) {
    const Error error =
        request.wrong ? *request.wrong : catalog_.refusal(locked, request.history, request.version, request.answer);
    if (writes && error.code == Errc::lost) {
      catalog_.mark_lost(locked, request.history, request.version,
                         {Errc::lost, catalog_.key_text(locked, request.history, request.version) +
                                          " was taken in stream order, and its bytes never came: " + error.message});
    }
    if (request.waitable) request.waitable->error = error;
  } else if (!writes) {
    statistics_.count_restore(locked, request.answer, request.bytes);
    catalog_.forget_if_gone(locked, request.history, request.version);
  }
  if (request.waitable) end(locked, *request.waitable);
  port_.ended().notify_all();
  streams_.put(locked, request.own);
  const planner::RequestId id = request.id;
  leave(request);
  background_.erase(id);
}

void CallTable::end_all(const Locked& locked) {
  for (auto& [id, request] : background_) {
    streams_.put(locked, request->own);
    requests_.erase(id);
    if (!request->waitable) continue;
    request->waitable->error = lifetime_.closed_error();
    end(locked, *request->waitable);
  }
  background_.clear();
  port_.ended().notify_all();
}

// --- what the planner gives ----------------------------------------------------------------------------------------

void CallTable::take_command(const Locked& /*locked*/, const planner::Command& command) {
  const auto found = requests_.find(command.request);
  if (found == requests_.end()) throw std::logic_error("a copy was ordered for a call that has ended");
  CallRow& request = *found->second;
  request.add(command);
  if (!request.background) return request.changed.notify_one();
  copies_to_make_.push_back(request.id);
  work_.notify_one();
}

void CallTable::take_answer(const Locked& locked, planner::Answer& answer) {
  if (abandoned_.erase(answer.request) > 0) return;
  const auto found = requests_.find(answer.request);
  if (found == requests_.end()) throw std::logic_error("an answer came for a call that has ended");
  CallRow& request = *found->second;
  request.answer = std::move(answer);
  request.answered = true;
  request.by_ended ? port_.ended().notify_all() : request.changed.notify_one();
  if (verify_all_ && request.answer.reason == planner::Reason::ok) {
    if (const Record* const record = catalog_.find(locked, request.answer.checkpoint)) request.sums = record->sums;
  }
  if (!request.background) return;
  if (!request.sums || !request.info) return end_background(locked, request);
  checks_.push_back(request.id);
  work_.notify_one();
}

void CallTable::take_spoiled(const Locked& /*locked*/, planner::RequestId id) {
  if (const auto found = requests_.find(id); found != requests_.end()) found->second->spoiled = true;
}

void CallTable::stream_ready(const Locked& locked, planner::RequestId id) {
  const auto found = requests_.find(id);
  port_.submit(locked, found == requests_.end() ? 0 : found->second->history, planner::event::Ready{id});
}

void CallTable::set_unsent(const Locked& /*locked*/, planner::CommandId command) {
  if (!streams_.host_memory()) unsent_.insert(command);
}

void CallTable::set_sent(const Locked& /*locked*/, planner::CommandId command) {
  if (unsent_.erase(command) == 0) return;
  for (auto& [id, request] : requests_) {
    if (request->next < request->commands.size() && request->commands[request->next].after == command) {
      request->changed.notify_one();
    }
  }
}

void CallTable::wake_requests(const Locked& /*locked*/) {
  for (auto& [id, request] : requests_) request->changed.notify_one();
}

void CallTable::wake_everyone(const Locked& /*locked*/) {
  for (auto& [id, request] : requests_) request->changed.notify_all();
  work_.notify_all();
  port_.ended().notify_all();
}

std::optional<CallTable::Work> CallTable::next_work(Locked& locked) {
  locked.let_go();
  EBB_WAIT(worker_sleeps, work_.wait(locked.native(), [&] {
    return lifetime_.closed(locked) || !copies_to_make_.empty() || !checks_.empty();
  }));
  if (lifetime_.closed(locked)) return {};
  const bool check = !checks_.empty();
  auto& from = check ? checks_ : copies_to_make_;
  const planner::RequestId id = from.front();
  from.pop_front();
  return Work{background_.at(id), check};
}

void CallTable::abandon(const Locked& /*locked*/, CallRow& request) {
  abandoned_.insert(request.id);
  request.answer.reason = planner::Reason::cancelled;
  request.answered = true;
}

}  // namespace ebb::store
