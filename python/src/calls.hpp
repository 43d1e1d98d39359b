#pragma once
// What calls that write and calls that read share: their options, and the streams that order them.
#include <optional>
#include <string>

#include "arrays.hpp"
#include "objects.hpp"
#include "state.hpp"

namespace ebb::python {

CheckpointOptions checkpoint_options(std::string metadata, std::optional<double> timeout, Signals& signals);
RestoreOptions restore_options(bool keep, std::optional<double> timeout, Signals& signals);

/// What a call's arrays may be, and the stream it was given.
Reach reach_of(StoreState& state, nb::handle stream);
/// Refuses a stream if the store is not on a GPU: unsupported.
void refuse_stream(const Reach& reach);

/// Whether arrays are freed as soon as nothing refers to them, even if a stream still uses them. PyTorch, CuPy and the
/// store reuse memory in stream order instead.
bool lends(const Leaf& leaf);
bool lends(const Bundle& bundle);
/// PyTorch and CuPy reuse an array's memory in the order of the stream on which they allocated it, and the store reuses
/// what it lent in the order of the streams that took it. A stream given to a call may be another one: this tells them
/// that it uses the memory too.
void tell_allocators(const Bundle& bundle, const Reach& reach);
/// Waits for a stream: after a failed call, nothing else shows when the stream has passed its copies.
void get_past(StoreState& state, StreamHandle stream);

/// Reads the disk for a version of an earlier process.
/// Waits for a snapshot of the version that is in flight, at most `timeout`.
CheckpointInfo info_of(const HistoryObject& self, Version version, Signals& signals,
                       std::optional<double> timeout = {});
/// Whether a version still has the description `info`. Another process may write it anew between two calls; arrays
/// allocated by `info` then do not fit what was read.
bool is_still(const HistoryObject& self, Version version, const CheckpointInfo& info);

}  // namespace ebb::python
