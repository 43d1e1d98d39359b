#include "planner/lifecycle.hpp"

#include <array>
#include <stdexcept>
#include <string>

namespace ebb::policy {
namespace {

using S = ReplicaState;

constexpr Transition kTable[] = {
    {S::gone, S::init, "a request or a plan", "room was given to it"},
    {S::init, S::reserved, "reserve", "on the fastest tier"},
    {S::init, S::writing, "checkpoint or flush", "bytes come from the application or from above"},
    {S::init, S::reading, "prefetch", "bytes come from below"},
    {S::init, S::gone, "failure or cancellation", "no command was given"},
    {S::reserved, S::written, "commit", "the application has computed all bytes"},
    {S::reserved, S::gone, "abandon", "nothing of it was promised"},
    {S::writing, S::written, "last chunk finished", "watermark = size"},
    {S::writing, S::gone, "failure, cancellation or discard", "every command on it has reported"},
    {S::written, S::flushed, "flush finished", "complete on a lower tier, or nothing below is owed"},
    {S::written, S::read_complete, "prefetch plan", "wanted here"},
    {S::written, S::consumed, "restore or release", "no further hint names it"},
    {S::written, S::gone, "discard, or exclusive capacity", "no uses; discarded, or a wanted replica above is kept"},
    {S::flushed, S::read_complete, "prefetch plan", "wanted here"},
    {S::flushed, S::consumed, "restore or release", "no further hint names it"},
    {S::flushed, S::written, "lower copy given up", "the only complete copies are here or above"},
    {S::flushed, S::gone, "eviction", "no uses; another complete copy stays"},
    {S::reading, S::read_complete, "last chunk finished", "watermark = size"},
    {S::reading, S::gone, "failure, cancellation or discard", "every command on it has reported"},
    {S::read_complete, S::consumed, "restore or release", "no further hint names it"},
    {S::read_complete, S::written, "unpinned", "not safe"},
    {S::read_complete, S::flushed, "unpinned", "safe"},
    {S::consumed, S::read_complete, "hint", "hinted again"},
    {S::consumed, S::gone, "eviction or discard", "no uses"},
};

constexpr int kStates = 9;

constexpr auto make_matrix() {
  std::array<std::array<bool, kStates>, kStates> matrix{};
  for (const Transition& t : kTable) matrix[static_cast<int>(t.from)][static_cast<int>(t.to)] = true;
  return matrix;
}
constexpr auto kAllowed = make_matrix();

}  // namespace

const char* name_of(ReplicaState state) {
  constexpr const char* kNames[kStates] = {"gone",    "init",    "reserved",      "writing", "written",
                                           "flushed", "reading", "read_complete", "consumed"};
  return kNames[static_cast<int>(state)];
}

std::span<const Transition> transitions() { return kTable; }

ReplicaState transition(ReplicaState from, ReplicaState to) {
  if (!kAllowed[static_cast<int>(from)][static_cast<int>(to)])
    throw std::logic_error(std::string("illegal transition of a replica: ") + name_of(from) + " to " + name_of(to));
  return to;
}

}  // namespace ebb::policy
