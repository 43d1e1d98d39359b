#include "calls.hpp"

#include <algorithm>

#include "arguments.hpp"
#include "errors.hpp"
#include "streams.hpp"
#include "waiting.hpp"

namespace ebb::python {

CheckpointOptions checkpoint_options(std::string metadata, std::optional<double> timeout, Signals& signals) {
  CheckpointOptions options;
  options.metadata = std::move(metadata);
  options.timeout = to_timeout(timeout).value_or(Seconds(1e9));
  options.interrupted = signals.interrupt();
  return options;
}

RestoreOptions restore_options(bool keep, std::optional<double> timeout, Signals& signals) {
  RestoreOptions options;
  options.keep = keep;
  options.timeout = to_timeout(timeout);
  options.interrupted = signals.interrupt();
  return options;
}

Reach reach_of(StoreState& state, nb::handle stream) { return {state.gpu(), to_stream(stream), &state.kinds()}; }

void refuse_stream(const Reach& reach) {
  if (reach.gpu >= 0 || !reach.stream) return;
  raise(Errc::unsupported, "stream= needs a store on a GPU: this one's device is host memory");
}

bool lends(const Leaf& leaf) { return leaf.gpu >= 0 && !has_streams(leaf.library) && !leaf.grip.lock(); }

bool lends(const Bundle& bundle) {
  return std::any_of(bundle.leaves.begin(), bundle.leaves.end(), [](const Leaf& leaf) { return lends(leaf); });
}

void tell_allocators(const Bundle& bundle, const Reach& reach) {
  if (!reach.stream) return;
  for (const Leaf& leaf : bundle.leaves) {
    if (const auto grip = leaf.grip.lock()) grip->taken_on(*reach.stream);
    if (leaf.gpu < 0 || !has_streams(leaf.library)) continue;
    nb::module_::import_("ebbtide._arrays").attr("in_use_on")(leaf.array, *reach.stream, reach.gpu);
  }
}

void get_past(StoreState& state, StreamHandle stream) {
  static_cast<void>(static_cast<bool>(finish(state, state.gpu(), stream)));
}

CheckpointInfo info_of(const HistoryObject& self, Version version, Signals& signals, std::optional<double> timeout) {
  auto info = [&] {
    Unlocked unlocked(self.state->inside());
    return self.history.info(version, to_timeout(timeout), signals.interrupt());
  }();
  signals.rethrow();
  return check(std::move(info));
}

bool is_still(const HistoryObject& self, Version version, const CheckpointInfo& info) {
  if (!self.state->kept()) return true;
  auto now = [&] {
    Unlocked unlocked(self.state->inside());
    return self.history.info(version);
  }();
  const auto same = [](const RegionInfo& a, const RegionInfo& b) {
    return a.id == b.id && a.bytes == b.bytes && a.offset == b.offset;
  };
  return !now || (now->metadata == info.metadata && std::ranges::equal(now->regions, info.regions, same));
}

}  // namespace ebb::python
