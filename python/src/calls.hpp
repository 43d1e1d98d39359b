#pragma once
// What calls that write and calls that read have in common: their options, and the streams that order them.
#include <optional>
#include <string>

#include "arrays.hpp"
#include "objects.hpp"
#include "state.hpp"

namespace ebb::python {

CheckpointOptions checkpoint_options(std::string metadata, std::optional<double> timeout, Signals& signals);
RestoreOptions restore_options(bool keep, std::optional<double> timeout, Signals& signals);

/// What arrays of a call may be, and what it said of its order.
Reach reach_of(State& state, nb::handle stream);
/// A stream needs a store on a GPU: unsupported.
void refuse_stream(const Reach& reach);

/// Arrays that are freed when nothing refers to them, whatever a stream still does with them; PyTorch, CuPy and the
/// store use their memory again in stream order.
bool lends(const Leaf& leaf);
bool lends(const Bundle& bundle);
/// PyTorch and CuPy use an array's memory again in the order of the stream on which they allocated it, and the store
/// what it lent in that of those which took it. A stream that was given to a call may be another: they are told that it
/// still works there.
void tell_allocators(const Bundle& bundle, const Reach& reach);
/// Waits for a stream: after a call that failed, nothing else tells when the stream is past its copies.
void get_past(State& state, StreamHandle stream);

/// Of what an earlier process wrote, this reads the disk.
CheckpointInfo info_of(const HistoryObject& self, Version version);
/// Whether a version is still what `info` says. Another process may write it anew between two calls; then arrays that
/// were made by `info` are not right for what was read.
bool is_still(const HistoryObject& self, Version version, const CheckpointInfo& info);

}  // namespace ebb::python
