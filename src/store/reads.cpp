#include "store/reads.hpp"

#include <algorithm>

#include "storage/format/snapshot_names.hpp"
#include "store/layout.hpp"

namespace ebb::store {

using planner::Reason;

namespace {

bool holds_snapshot(const Record* record) {
  return record != nullptr && record->info && storage::is_snapshot(*record->info);
}

Error only_restored(const std::string& key, const std::string& call) {
  return {Errc::unsupported, key + " is a snapshot: restore() reads it, " + call + " cannot"};
}

}  // namespace

// Fills what a restore needs; an error when the targets do not fit what was written. Nothing is decided about a version
// that is not there: the planner refuses it, by its name.
Result<void> Reads::prepare_restore(const Locked& locked, CallRow& request, const Record* record,
                                    std::span<const Target> targets, bool some) {
  if (record == nullptr || !record->info) return {};
  auto pieces = pieces_of(*record->info, targets, some);
  if (!pieces) {
    return Error{pieces.error().code,
                 catalog_.key_text(locked, request.history, request.version) + ": " + pieces.error().message};
  }
  request.pieces = std::move(*pieces);
  request.info = record->info;
  request.copies = true;
  request.bytes = record->info->bytes;
  return {};
}

Result<bool> Reads::restore(planner::HistoryId history, Version version, std::span<const Target> targets,
                            const RestoreOptions& options, Reading reading) {
  const auto stream = streams_.resolve(options.stream);
  if (!stream) return stream.error();
  // In stream order it outlives the call.
  const auto shared = *stream ? std::make_shared<CallRow>() : nullptr;
  std::optional<CallRow> in_frame;
  CallRow& request = shared ? *shared : in_frame.emplace();
  request.stream = *stream;
  request.history = history;
  request.version = version;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (auto loaded = recovery_.load_metadata(locked, history, version, true); !loaded) return loaded.error();
  const Record* const record = catalog_.find(locked, history, version);
  if (reading == Reading::whole && holds_snapshot(record)) return false;
  if (auto ready = prepare_restore(locked, request, record, targets, options.some); !ready) return ready.error();
  const bool hint = reading == Reading::look && port_.planner(locked).hinted(history, version);
  CallTable::Entered entered(calls_, locked, request);
  const Timer timer(timers_, locked, port_.now(), options.timeout, request.changed);
  port_.submit(locked, history,
               planner::event::Restore{request.id, version, options.keep || reading == Reading::look,
                                       request.stream.has_value()});
  if (hint) port_.submit(locked, history, planner::event::HintFront{version});
  callers_.run_until_answered(locked, request, &timer, options.interrupted);
  if (request.refused) return *request.refused;
  if (!request.answered && (lifetime_.closed(locked) || !request.all_enqueued())) return lifetime_.closed_error();
  statistics_.count_blocked(locked, CallStatistics::Blocked::transfer, request.started, request.copying,
                            port_.last_event(locked));
  if (!request.answered) {
    entered.detach(shared, nullptr);
    port_.submit(locked, history, planner::event::Submit{.request = request.id});
    catalog_.forget_if_gone(locked, history, version);
    return true;
  }
  if (request.answer.reason != Reason::ok) {
    if (request.wrong) return *request.wrong;
    return files_.pool().with_agent(catalog_.refusal(locked, history, version, request.answer));
  }
  const auto right = verifier_.check_handed_out(locked, request, request.pieces, true);
  if (!lifetime_.closed(locked)) {
    statistics_.count_restore(locked, request.answer, request.bytes);
    catalog_.forget_if_gone(locked, history, version);
  }
  if (!right) return right.error();
  return true;
}

Result<Future> Reads::restore_async(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                                    std::span<const Target> targets, const RestoreOptions& options) {
  if (auto error = lifetime_.forked()) return *error;
  if (options.stream) {
    return Error{Errc::invalid_argument,
                 "restore_async takes no stream=: restore(stream=) does not hold up the host when "
                 "the checkpoint is on the device"};
  }
  if (const auto free = streams_.resolve({}); !free) return free.error();
  auto request = std::make_shared<CallRow>();
  request->history = history;
  request->version = version;
  auto waitable = std::make_shared<Waitable>();
  waitable->engine = std::move(engine);
  waitable->history = history;
  waitable->version = version;
  waitable->background = true;
  request->waitable = waitable;
  Locked locked = port_.lock();
  Result<void> ready;
  if (!streams_.host_memory() && !lifetime_.closed(locked)) {
    // The target is the caller's at this moment: what the legacy default stream does with it later is not waited for,
    // and a capture that begins there meanwhile is not spoilt.
    streams_.take(locked, request->own);
    locked.unlock();
    ready = streams_.come_after_legacy(request->own);
    locked.lock();
  }
  if (lifetime_.closed(locked)) ready = lifetime_.closed_error();
  if (ready) ready = recovery_.load_metadata(locked, history, version, true);
  if (ready) {
    const Record* const record = catalog_.find(locked, history, version);
    if (holds_snapshot(record))
      ready = only_restored(catalog_.key_text(locked, history, version), "restore_async()");
    else
      ready = prepare_restore(locked, *request, record, targets, options.some);
  }
  if (!ready) {
    streams_.put(locked, request->own);
    return ready.error();
  }
  waitable->in_hand = catalog_.in_hand(locked, history);
  calls_.add_background(locked, request);
  port_.submit(locked, history,
               planner::event::Restore{.request = request->id, .version = version, .keep = options.keep});
  if (waitable->ended && waitable->error) return *waitable->error;  // refused at once
  queues_.drain(locked);  // it may be a while before the planner hears anything else
  return Future(std::move(waitable));
}

Result<Loan> Reads::borrow(const std::shared_ptr<Engine>& engine, planner::HistoryId history, Version version,
                           const RestoreOptions& options) {
  if (auto error = lifetime_.forked()) return *error;
  return until_settled(history, version, options,
                       [&](const RestoreOptions& left) { return borrow_once(engine, history, version, left); });
}

Result<Loan> Reads::borrow_once(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                                const RestoreOptions& options) {
  if (auto usable = streams_.check(options.stream); !usable) return usable.error();
  CallRow request;
  request.history = history;
  request.version = version;
  auto hold = std::make_unique<Loan::Impl>();
  hold->keep = options.keep;
  hold->engine = std::move(engine);
  hold->history = history;
  hold->version = version;

  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (auto loaded = recovery_.load_metadata(locked, history, version, true); !loaded) return loaded.error();
  hold->in_hand = catalog_.in_hand(locked, history);
  if (const Record* record = catalog_.find(locked, history, version)) {
    if (holds_snapshot(record)) return only_restored(catalog_.key_text(locked, history, version), "borrow()");
    hold->info = record->info;
    hold->checkpoint = record->checkpoint;
    request.bytes = record->info->bytes;
    request.info = record->info;
  }
  const CallTable::Entered entered(calls_, locked, request);
  const Timer timer(timers_, locked, port_.now(), options.timeout, request.changed);
  // Without a limit it is refused as soon as no transfer can make room for it in the device cache.
  const planner::Time timeout = options.timeout ? nanoseconds(*options.timeout) : 0;
  port_.submit(locked, history, planner::event::Borrow{request.id, version, timeout});
  callers_.run_until_answered(locked, request, &timer, options.interrupted);
  if (!request.answered) return lifetime_.closed_error();
  statistics_.count_blocked(locked, CallStatistics::Blocked::transfer, request.started, request.copying,
                            port_.last_event(locked));
  if (request.answer.reason != Reason::ok) {
    return files_.pool().with_agent(catalog_.refusal(locked, history, version, request.answer));
  }
  statistics_.count_restore(locked, request.answer, request.bytes);
  hold->tiers = memory_.share();
  hold->place = request.answer.place;
  hold->request = request.id;
  if (request.bytes > 0) hold->data = hold->tiers->at(hold->place);
  if (request.bytes > 0 && Tiers::adopted(hold->place))
    hold->adopted = memory_.owner_of_adopted(locked, request.answer.checkpoint);
  Loan loan(std::move(hold));
  Result<void> right = verifier_.check_lent(locked, request);
  if (right && request.sums) {  // it is not mended: others may be reading that memory
    right = verifier_.check_handed_out(locked, request, pieces_in(*request.info, loan.state_->data), false);
  }
  if (right) return loan;
  locked.unlock();
  static_cast<void>(loan.release(true));
  locked.lock();  // the request and its timer leave their tables with it
  return right.error();
}

Result<void> Reads::release(Loan::Impl& hold, bool keep, const HandBack& how) {
  if (auto error = lifetime_.forked()) return *error;
  const auto stream = streams_.resolve_hand_back(how.stream);
  if (!stream) return stream.error();
  Locked locked = port_.lock();
  hold.ended = true;
  if (!lifetime_.running(locked)) {
    // What it held is given back with the store; the next call says why.
    locked.unlock();
    if (*stream) streams_.finish(**stream);
    return {};
  }
  const planner::event::Release release{hold.request, keep || hold.keep};
  const bool lost = hold.data != nullptr && hold.tiers->lost(hold.place);
  auto handed = hand_backs_.hand_back(locked, queues_.copies(), hold, *stream, release, how.hold);
  if (handed && lost) {
    handed = Error{Errc::lost, catalog_.key_text(locked, hold.history, hold.version) +
                                   " was lost while it was borrowed: what was read of it may be wrong"};
  }
  if (!lifetime_.closed(locked)) catalog_.forget_if_gone(locked, hold.history, hold.version);
  return handed;
}

void Reads::release_unordered(Loan::Impl& hold) {
  if (lifetime_.forked()) return;
  if (streams_.host_memory()) {
    static_cast<void>(static_cast<bool>(release(hold, false, {})));
    return;
  }
  const bool finished = streams_.finish_unordered();
  Locked locked = port_.lock();
  if (!lifetime_.running(locked) || !finished) return;
  const planner::event::Release release{hold.request, hold.keep};
  static_cast<void>(static_cast<bool>(hand_backs_.hand_back(locked, queues_.copies(), hold, {}, release, false)));
}

void Reads::end_hold(Hold& hold) {
  if (hold.handed_back == 0 || lifetime_.forked()) return;
  const Locked locked = port_.lock();
  hand_backs_.end_hold(locked, hold);
}

}  // namespace ebb::store
