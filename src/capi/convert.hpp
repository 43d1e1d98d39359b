#pragma once
// The C structs as C++ values. A wrong pointer or number throws std::invalid_argument, which becomes its code.
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "capi/handles.hpp"

namespace ebb::capi {

inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

inline void check_array(const void* items, std::size_t count) {
  require(items || count == 0, "an array is NULL although its count is not 0");
}

inline void check_seconds(double seconds) { require(!std::isnan(seconds), "a timeout is not a number"); }

inline std::optional<std::string_view> level_of(const char* level) {
  return level ? std::optional<std::string_view>(level) : std::nullopt;
}

/// `sized`: the data pointers are not read (a reservation gives sizes alone).
inline std::vector<Source> sources_of(const ebb_source* sources, std::size_t count, bool sized = false) {
  check_array(sources, count);
  std::vector<Source> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    require(sized || sources[i].data || sources[i].bytes == 0, "a source's data is NULL although it has bytes");
    all.push_back({sources[i].id, sized ? nullptr : sources[i].data, sources[i].bytes});
  }
  return all;
}

inline std::vector<Target> targets_of(const ebb_target* targets, std::size_t count) {
  check_array(targets, count);
  std::vector<Target> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    require(targets[i].data || targets[i].bytes == 0, "a target's data is NULL although it has bytes");
    all.push_back({targets[i].id, targets[i].data, targets[i].bytes});
  }
  return all;
}

inline Interrupt interrupt_of(ebb_interrupt interrupted, void* context) {
  if (!interrupted) return {};
  return [interrupted, context] { return interrupted(context) != 0; };
}

inline std::optional<StreamHandle> stream_of(ebb_stream stream) {
  return stream == EBB_NO_STREAM ? std::nullopt : std::optional(StreamHandle{stream});
}

Options options_of(const ebb_options* given);

inline CheckpointOptions options_of(const ebb_checkpoint_options* given) {
  CheckpointOptions options;
  if (!given) return options;
  check_array(given->metadata, given->metadata_bytes);
  check_seconds(given->timeout);
  if (given->metadata_bytes) options.metadata.assign(static_cast<const char*>(given->metadata), given->metadata_bytes);
  options.timeout = given->timeout < 0 ? Seconds(std::numeric_limits<double>::infinity()) : Seconds(given->timeout);
  options.interrupted = interrupt_of(given->interrupted, given->context);
  options.stream = stream_of(given->stream);
  options.check = given->check != 0;
  if (given->released) {
    // A pointer to nothing, for its deleter.
    const auto released = [call = given->released, context = given->released_context](const void*) { call(context); };
    options.adopt = std::shared_ptr<const void>(static_cast<const void*>(given), released);
  }
  return options;
}

inline RestoreOptions options_of(const ebb_restore_options* given) {
  RestoreOptions options;
  if (!given) return options;
  check_seconds(given->timeout);
  options.keep = given->keep != 0;
  options.timeout = timeout_of(given->timeout);
  options.interrupted = interrupt_of(given->interrupted, given->context);
  options.stream = stream_of(given->stream);
  if (given->have) options.have = *given->have;
  return options;
}

inline ProtectOptions options_of(const ebb_protect_options* given) {
  ProtectOptions options;
  if (!given) return options;
  options.zone = given->zone;
  if (given->track) options.track = parse_track(given->track).value();
  options.hints = given->hints != 0;
  options.duplicate = given->duplicate != 0;
  return options;
}

inline SnapshotOptions options_of(const ebb_snapshot_options* given) {
  SnapshotOptions options;
  if (!given) return options;
  check_array(given->metadata, given->metadata_bytes);
  if (given->metadata_bytes) options.metadata.assign(static_cast<const char*>(given->metadata), given->metadata_bytes);
  options.full = given->full != 0;
  options.dedup = given->dedup != 0;
  options.stream = stream_of(given->stream);
  options.fenced = given->fenced != 0;
  return options;
}

inline HandBack options_of(const ebb_hand_back_options* given) {
  if (!given) return {};
  return {.stream = stream_of(given->stream), .hold = given->hold != 0, .check = given->check != 0};
}

/// Copies what fits of `items` and reports how many there are.
template <class From, class To, class Convert>
ebb_status copy_out(const From& items, To* to, std::size_t capacity, std::size_t* count, Convert convert) {
  check_array(to, capacity);
  require(count, "the pointer for the count is NULL");
  *count = items.size();
  std::size_t i = 0;
  for (const auto& item : items)
    if (i < capacity) to[i++] = convert(item);
  if (capacity > 0 && capacity < items.size()) return fail(EBB_SIZE_MISMATCH, "there are more than the array holds");
  return EBB_OK;
}

}  // namespace ebb::capi
