#include "store/writes.hpp"

#include "storage/veloc/veloc_file.hpp"
#include "store/histories.hpp"
#include "store/layout.hpp"

namespace ebb::store {

using planner::Reason;

std::optional<Error> Writes::not_writable(const Locked& locked, planner::HistoryId history, Version version) const {
  if (lifetime_.closed(locked) || lifetime_.closing(locked)) return lifetime_.closed_error();
  if (setup_.readonly) return readonly_error(setup_);
  if (auto named = catalog_.check_name(locked, history); !named) return named.error();
  if (setup_.veloc) {
    if (auto fits = storage::check_veloc_name(catalog_.name_of(locked, history), version); !fits) return fits.error();
  }
  return {};
}

// All of its bytes are in the store.
void Writes::count_written(const Locked& locked, planner::CheckpointRef checkpoint, std::uint64_t bytes) {
  statistics_.count_checkpoint(locked, bytes);
  if (!lifetime_.closed(locked)) memory_.tiers().produced(bytes);
  catalog_.set_written(locked, checkpoint);
}

// Releases the mutex to warn.
void Writes::warn_beneath(Locked& locked, planner::HistoryId history, Version version) {
  const auto text = recovery_.beneath(locked, history, version);
  if (!text || !setup_.log) return;
  locked.unlock();
  setup_.log.warning(*text);
  locked.lock();
}

Result<Future> Writes::checkpoint(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                                  std::span<const Source> sources, const CheckpointOptions& options) {
  if (auto error = lifetime_.forked()) return *error;
  auto info = lay_out(sources, options.metadata, false);
  if (!info) return info.error();
  const auto stream = streams_.resolve(options.stream);
  if (!stream) return stream.error();
  // In stream order it outlives the call.
  const auto shared = *stream ? std::make_shared<CallRow>() : nullptr;
  std::optional<CallRow> in_frame;
  CallRow& request = shared ? *shared : in_frame.emplace();
  request.stream = *stream;
  request.history = history;
  request.version = version;
  request.bytes = info->bytes;
  request.pieces = pieces_of(*info, sources);
  request.copies = true;
  auto laid_out = std::make_shared<const CheckpointInfo>(std::move(*info));
  auto sums = verifier_.sums_of(*laid_out, request.pieces);
  if (!sums) return prefixed(catalog_.key_text(port_.lock(), history, version), sums.error());
  auto waitable = std::make_shared<Waitable>();
  waitable->engine = std::move(engine);
  waitable->history = history;
  waitable->version = version;
  waitable->ended = true;  // when this call returns

  Locked locked = port_.lock();
  if (auto error = not_writable(locked, history, version)) return *error;
  waitable->in_hand = catalog_.in_hand(locked, history);
  catalog_.mark_used(locked, history);
  CallTable::Entered entered(calls_, locked, request);
  const Interrupt interrupted = files_.pool().limited(options.timeout, options.interrupted);
  port_.submit(locked, history,
               planner::event::Checkpoint{.request = request.id,
                                          .version = version,
                                          .bytes = request.bytes,
                                          .timeout = nanoseconds(options.timeout),
                                          .ordered = request.stream.has_value()});
  if (!request.answered || request.answer.reason == Reason::ok) {
    Record& record = catalog_.add(locked, history, version);  // at once: another thread may ask for it already
    catalog_.describe(locked, record, std::move(laid_out));
    record.future = waitable;
    record.sums = std::move(*sums);
    waitable->checkpoint = record.checkpoint;
    if (options.to_shared) port_.submit(locked, history, planner::event::Goes{version});
    callers_.run_until_answered(locked, request, nullptr, interrupted);
  }
  if (request.refused) return *request.refused;
  if (!request.answered && (lifetime_.closed(locked) || !request.all_enqueued())) return lifetime_.closed_error();
  statistics_.count_blocked(locked, CallStatistics::Blocked::room, request.started, request.copying,
                            port_.last_event(locked));
  if (request.answered && request.answer.reason != Reason::ok) {
    if (request.wrong) return *request.wrong;
    return files_.pool().with_agent(catalog_.refusal(locked, history, version, request.answer));
  }
  if (!request.answered) entered.detach(shared, waitable);
  count_written(locked, waitable->checkpoint, request.bytes);
  files_.pool().note_checkpoint(locked, request.started);
  if (request.bytes == 0) files_.empty().store(locked, waitable->checkpoint);
  warn_beneath(locked, history, version);
  return Future(std::move(waitable));
}

Result<Reservation> Writes::reserve(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                                    std::span<const Source> regions, const CheckpointOptions& options,
                                    const void* adopt) {
  if (auto error = lifetime_.forked()) return *error;
  if (auto usable = streams_.check(options.stream); !usable) return usable.error();
  auto info = lay_out(regions, options.metadata, true);
  if (!info) return info.error();
  CallRow request;
  request.history = history;
  request.version = version;
  request.bytes = info->bytes;
  auto hold = std::make_unique<Reservation::Impl>();
  hold->engine = std::move(engine);
  hold->history = history;
  hold->version = version;
  hold->info = std::make_shared<const CheckpointInfo>(std::move(*info));

  Locked locked = port_.lock();
  if (auto error = not_writable(locked, history, version)) return *error;
  hold->in_hand = catalog_.in_hand(locked, history);
  catalog_.mark_used(locked, history);
  const CallTable::Entered entered(calls_, locked, request);
  const Interrupt interrupted = files_.pool().limited(options.timeout, options.interrupted);
  const planner::Time timeout = nanoseconds(options.timeout);
  if (adopt == nullptr) {
    port_.submit(locked, history, planner::event::Reserve{request.id, version, request.bytes, timeout});
  } else {
    const planner::Bytes place = planner::kAdopted + reinterpret_cast<std::uintptr_t>(adopt);
    port_.submit(locked, history, planner::event::Adopt{request.id, version, request.bytes, timeout, place});
  }
  if (!request.answered || request.answer.reason == Reason::ok) {
    Record& record = catalog_.add(locked, history, version);
    catalog_.describe(locked, record, hold->info);
    record.reserved = true;
    hold->checkpoint = record.checkpoint;
    if (options.to_shared) port_.submit(locked, history, planner::event::Goes{version});
    callers_.run_until_answered(locked, request, nullptr, interrupted);
  }
  if (!request.answered) return lifetime_.closed_error();
  statistics_.count_blocked(locked, CallStatistics::Blocked::room, request.started, request.copying,
                            port_.last_event(locked));
  if (request.answer.reason != Reason::ok) {
    return files_.pool().with_agent(catalog_.refusal(locked, history, version, request.answer));
  }
  hold->tiers = memory_.share();
  hold->place = request.answer.place;
  hold->request = request.id;
  const Result<void> there = request.bytes > 0 ? memory_.await(locked, request, interrupted) : Result<void>();
  if (!there) {
    if (lifetime_.closed(locked)) return there.error();
    port_.submit(locked, history, planner::event::Abandon{request.id});
    return files_.pool().with_agent(there.error());
  }
  if (request.bytes > 0) hold->data = hold->tiers->at(hold->place);
  return Reservation(std::move(hold));
}

// A reservation of the program's own memory, committed at once. Where it is answered with a place in the cache, the
// bytes are copied there; where there is none, it is a checkpoint as any other.
Result<Future> Writes::adopt(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                             std::span<const Source> sources, const CheckpointOptions& options) {
  if (sources.size() != 1) {
    return Error{Errc::invalid_argument, "adopt needs a checkpoint of one region; this one has " +
                                             std::to_string(sources.size()) + ": write each as a version of its own"};
  }
  const Source& source = sources.front();
  const bool possible = port_.machine().tiers.front().adopted > 0 && source.bytes > 0 && source.data != nullptr &&
                        (streams_.host_memory() || streams_.device().owns(source.data, source.bytes));
  if (!possible) return checkpoint(std::move(engine), history, version, sources, options);
  if (options.check && reinterpret_cast<std::uintptr_t>(source.data) % 16 != 0) {
    return Error{Errc::invalid_argument, "check needs memory that is aligned to 16 bytes"};
  }
  CheckpointOptions now = options;
  now.timeout = Seconds(0);
  now.adopt = nullptr;
  auto reserved = reserve(engine, history, version, sources, now, source.data);
  if (!reserved) {
    const Errc code = reserved.error().code;
    if (code != Errc::no_space && code != Errc::too_large) return reserved.error();
    return checkpoint(std::move(engine), history, version, sources, options);
  }
  Reservation::Impl& hold = *reserved->state_;
  if (Tiers::adopted(hold.place)) {
    memory_.adopt(port_.lock(), hold.checkpoint, options.adopt);
  } else if (auto filled = fill(hold, source, options.stream); !filled) {
    return prefixed(catalog_.key_text(port_.lock(), history, version), filled.error());
  }
  Future future = future_of(hold);
  if (auto committed = reserved->commit({.stream = options.stream, .check = options.check}); !committed)
    return committed.error();
  return future;
}

Future Writes::future_of(const Reservation::Impl& hold) {
  auto waitable = std::make_shared<Waitable>();
  waitable->engine = hold.engine;
  waitable->history = hold.history;
  waitable->in_hand = hold.in_hand;
  waitable->version = hold.version;
  waitable->checkpoint = hold.checkpoint;
  waitable->ended = true;
  const Locked locked = port_.lock();
  if (Record* const record = catalog_.find(locked, hold.checkpoint)) record->future = waitable;
  return Future(std::move(waitable));
}

// Without a stream, returns when the bytes are there.
Result<void> Writes::fill(const Reservation::Impl& hold, const Source& source,
                          const std::optional<StreamHandle>& stream) {
  const auto on = streams_.resolve_hand_back(stream);
  if (!on) return on.error();
  const device::StreamId order = on->value_or(device::kInlineStream);
  Result<void> result;
  const planner::Place application{{planner::Endpoint::application, planner::kNoTier}, 0};
  hold.tiers->for_each_part(application, hold.place, source.bytes, [&](std::uint64_t at, std::uint64_t length) {
    if (result)
      result =
          hold.tiers->device().copy(order, hold.data + at, static_cast<const std::byte*>(source.data) + at, length);
  });
  if (!streams_.host_memory() && (!stream || !result)) streams_.finish(order);
  return result;
}

Result<void> Writes::commit(Reservation::Impl& hold, const HandBack& how) {
  if (auto error = lifetime_.forked()) return *error;
  const planner::Time begun = port_.now();
  auto stream = streams_.resolve_hand_back(how.stream);
  if (!stream) return stream.error();
  if (hold.info->bytes == 0) stream = std::optional<device::StreamId>();  // nothing to wait for
  auto sums = verifier_.sums_of(*hold.info, hold.data);
  Locked locked = port_.lock();
  const auto over = [&] { return lifetime_.closed(locked) || lifetime_.closing(locked); };
  if (over()) return lifetime_.closed_error();
  std::shared_ptr<Check> check;
  if (how.check && hold.info->bytes > 0) {
    const InFlight taking(locked, lifetime_);
    auto taken = verifier_.take_digest(hold, *stream);
    if (!taken) return taken.error();
    check = std::move(*taken);
  }
  if (over()) {
    locked.unlock();
    if (check && *stream) streams_.finish(**stream);  // the digest is on its way to memory that is about to go
    return lifetime_.closed_error();
  }
  Record* const record = catalog_.find(locked, hold.checkpoint);
  const bool there = record != nullptr && catalog_.live(locked, *record);
  if (there) {
    record->sums = std::move(sums);
    record->check = check;
  }
  hold.ended = true;
  const HandBacks::End end =
      there ? HandBacks::End(planner::event::Commit{.request = hold.request}) : planner::event::Abandon{hold.request};
  auto handed =
      hand_backs_.hand_back(locked, queues_.copies(), hold, *stream, end, how.hold && there, std::move(check));
  if (!there) {
    return Error{Errc::dropped,
                 catalog_.key_text(locked, hold.history, hold.version) + " was dropped while it was reserved"};
  }
  if (handed && !lifetime_.closed(locked)) {
    count_written(locked, hold.checkpoint, hold.info->bytes);
    files_.pool().note_checkpoint(locked, begun);
    if (hold.info->bytes == 0) files_.empty().store(locked, hold.checkpoint);
    warn_beneath(locked, hold.history, hold.version);
  }
  return handed;
}

void Writes::abandon(Reservation::Impl& hold) {
  if (lifetime_.forked()) return;
  const bool finished = hold.info->bytes == 0 || streams_.finish_unordered();
  const Locked locked = port_.lock();
  if (!lifetime_.running(locked) || !finished) return;
  port_.submit(locked, hold.history, planner::event::Abandon{hold.request});
}

}  // namespace ebb::store
