// Checkpoints, restores and their futures; reservations and loans. A handle is allocated before the call that fills it,
// so that a call that fails with "out of memory" has not written or consumed a checkpoint.
#include "capi/convert.hpp"

using namespace ebb::capi;

namespace {

constexpr const char* kNoReservation = "the reservation is NULL or another kind of handle";
constexpr const char* kNoLoan = "the loan is NULL or another kind of handle";

// The calls that hand out a handle: `body(history, handle)` fills it.
template <class H, class Body>
ebb_status with_handle(ebb_store* store, H** out, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (out) *out = nullptr;
    if (!valid(store)) return refuse(kNoStore);
    auto handle = std::make_unique<H>();
    const ebb_status status = body(store->history, *handle);
    if (status == EBB_OK && out) *out = handle.release();
    return status;
  });
}

// Moves a call's result into its place in a handle.
template <class T, class Where>
ebb_status keep_in(Where& place, ebb::Result<T> result) {
  if (!result) return fail(result.error());
  place = std::move(*result);
  return EBB_OK;
}

// Given back: removed from the handle, or held there until the handle is freed.
template <class H>
void end_of(H& handle, const ebb::HandBack& how) {
  if (how.hold) handle.kept = std::move(handle.held);
  handle.held.reset();
}

template <class Span, class Pointer>
ebb_status tell_region(Span region, Pointer* data, size_t* bytes) {
  *data = region.data();
  if (bytes) *bytes = region.size();
  return EBB_OK;
}

}  // namespace

extern "C" {

ebb_status ebb_checkpoint(ebb_store* store, int64_t version, const ebb_source* sources, size_t count,
                          const ebb_checkpoint_options* options, ebb_future** future) {
  return with_handle(store, future, [&](ebb::History& history, ebb_future& handle) {
    return keep_in(handle.future, history.checkpoint(version, sources_of(sources, count), options_of(options)));
  });
}

ebb_status ebb_restore(ebb_store* store, int64_t version, const ebb_target* targets, size_t count,
                       const ebb_restore_options* options) {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    return status_of(store->history.restore(version, targets_of(targets, count), options_of(options)));
  });
}

ebb_status ebb_restore_async(ebb_store* store, int64_t version, const ebb_target* targets, size_t count,
                             const ebb_restore_options* options, ebb_future** future) {
  if (!future) return refuse("the pointer for the future is NULL, but only the future shows when the bytes are usable");
  return with_handle(store, future, [&](ebb::History& history, ebb_future& handle) {
    return keep_in(handle.future, history.restore_async(version, targets_of(targets, count), options_of(options)));
  });
}

ebb_status ebb_future_done(const ebb_future* future, const char* level, int* done) {
  return guarded([&]() -> ebb_status {
    if (done) *done = 0;
    if (!valid(future)) return refuse(kNoFuture);
    if (!done) return refuse("the pointer for the answer is NULL");
    *done = std::visit([&](const auto& of) { return of.done(level_of(level)); }, future->future) ? 1 : 0;
    return EBB_OK;
  });
}

ebb_status ebb_future_wait(const ebb_future* future, const char* level, double timeout) {
  return guarded([&]() -> ebb_status {
    if (!valid(future)) return refuse(kNoFuture);
    check_seconds(timeout);
    return status_of(
        std::visit([&](const auto& of) { return of.wait(level_of(level), timeout_of(timeout)); }, future->future));
  });
}

ebb_status ebb_future_error(const ebb_future* future) {
  return guarded([&]() -> ebb_status {
    if (!valid(future)) return refuse(kNoFuture);
    const auto error = std::visit([](const auto& of) { return of.error(); }, future->future);
    return error ? fail(*error) : EBB_OK;
  });
}

ebb_status ebb_future_free(ebb_future** future) { return free_handle(future, kNoFuture); }

ebb_status ebb_reserve(ebb_store* store, int64_t version, const ebb_source* regions, size_t count,
                       const ebb_checkpoint_options* options, ebb_reservation** reservation) {
  if (!reservation) return refuse("the pointer for the reservation is NULL");
  return with_handle(store, reservation, [&](ebb::History& history, ebb_reservation& handle) {
    return keep_in(handle.held, history.reserve(version, sources_of(regions, count, true), options_of(options)));
  });
}

ebb_status ebb_reservation_data(const ebb_reservation* reservation, uint32_t id, void** data, size_t* bytes) {
  return guarded([&]() -> ebb_status {
    if (data) *data = nullptr;
    if (bytes) *bytes = 0;
    if (!valid(reservation)) return refuse(kNoReservation);
    if (!data) return refuse("the pointer for the data is NULL");
    if (!reservation->held) return refuse("the reservation was committed or abandoned");
    return tell_region(reservation->held->region(id), data, bytes);
  });
}

ebb_status ebb_reservation_commit(ebb_reservation* reservation, const ebb_hand_back_options* how) {
  return guarded([&]() -> ebb_status {
    if (!valid(reservation)) return refuse(kNoReservation);
    if (!reservation->held) return refuse("the reservation was committed or abandoned");
    const ebb::HandBack given = options_of(how);
    const ebb_status status = status_of(reservation->held->commit(given));
    if (status == EBB_OK) end_of(*reservation, given);
    return status;
  });
}

ebb_status ebb_reservation_abandon(ebb_reservation* reservation) {
  return guarded([&]() -> ebb_status {
    if (!valid(reservation)) return refuse(kNoReservation);
    if (!reservation->held) return refuse("the reservation was committed or abandoned");
    reservation->held->abandon();
    reservation->held.reset();
    return EBB_OK;
  });
}

ebb_status ebb_reservation_free(ebb_reservation** reservation) { return free_handle(reservation, kNoReservation); }

ebb_status ebb_borrow(ebb_store* store, int64_t version, const ebb_restore_options* options, ebb_loan** loan) {
  if (!loan) return refuse("the pointer for the loan is NULL");
  return with_handle(store, loan, [&](ebb::History& history, ebb_loan& handle) {
    return keep_in(handle.held, history.borrow(version, options_of(options)));
  });
}

ebb_status ebb_loan_data(const ebb_loan* loan, uint32_t id, const void** data, size_t* bytes) {
  return guarded([&]() -> ebb_status {
    if (data) *data = nullptr;
    if (bytes) *bytes = 0;
    if (!valid(loan)) return refuse(kNoLoan);
    if (!data) return refuse("the pointer for the data is NULL");
    if (!loan->held) return refuse("the loan was released");
    return tell_region(loan->held->region(id), data, bytes);
  });
}

ebb_status ebb_loan_release(ebb_loan* loan, int keep, const ebb_hand_back_options* how) {
  return guarded([&]() -> ebb_status {
    if (!valid(loan)) return refuse(kNoLoan);
    if (!loan->held) return refuse("the loan was released");
    const ebb::HandBack given = options_of(how);
    const ebb_status status = status_of(loan->held->release(keep != 0, given));
    if (status == EBB_OK) end_of(*loan, given);
    return status;
  });
}

ebb_status ebb_loan_free(ebb_loan** loan) { return free_handle(loan, kNoLoan); }
}
