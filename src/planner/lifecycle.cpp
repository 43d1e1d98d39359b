#include "planner/lifecycle.hpp"

namespace ebb::planner {
namespace {

using S = ReplicaState;

constexpr Transition kTransitions[] = {
    {S::gone, S::init, "request or plan", "the tier has room for it"},
    {S::init, S::reserved, "reserve", "it is on the fastest tier"},
    {S::init, S::writing, "checkpoint or flush", "its bytes come from the application or a higher tier"},
    {S::init, S::reading, "prefetch", "its bytes come from a lower tier"},
    {S::init, S::gone, "failure or cancellation", "no command was issued for it"},
    {S::reserved, S::written, "commit", "the application has computed all bytes"},
    {S::reserved, S::gone, "abandon", "it was not committed"},
    {S::writing, S::written, "last chunk finished", "all bytes are valid, here or in its other part"},
    {S::writing, S::gone, "failure, cancellation or discard", "every command on it has ended"},
    {S::written, S::flushed, "flush finished", "a lower tier has a complete copy, or needs none"},
    {S::written, S::read_complete, "prefetch plan", "the plan wants it on this tier"},
    {S::written, S::consumed, "restore or release", "no further hint names it"},
    {S::written, S::gone, "discard, or exclusive capacity",
     "it is unused; it is discarded, or a wanted replica is on a higher tier"},
    {S::flushed, S::read_complete, "prefetch plan", "the plan wants it on this tier"},
    {S::flushed, S::consumed, "restore or release", "no further hint names it"},
    {S::flushed, S::written, "lower copy discarded", "the only complete copies are on this tier or higher"},
    {S::flushed, S::gone, "eviction", "it is unused; another complete copy remains"},
    {S::reading, S::read_complete, "last chunk finished", "all bytes are valid"},
    {S::reading, S::gone, "failure, cancellation or discard", "every command on it has ended"},
    {S::read_complete, S::consumed, "restore or release", "no further hint names it"},
    {S::read_complete, S::written, "unpinned", "it is not safe"},
    {S::read_complete, S::flushed, "unpinned", "it is safe"},
    {S::consumed, S::read_complete, "hint", "a hint names it again"},
    {S::consumed, S::gone, "eviction or discard", "it is unused"},
};

constexpr StateTable<ReplicaState, 9> kReplicaStates("a replica",
                                                     {"gone", "init", "reserved", "writing", "written", "flushed",
                                                      "reading", "read_complete", "consumed"},
                                                     kTransitions);

}  // namespace

const char* name_of(ReplicaState state) { return kReplicaStates.name_of(state); }
std::span<const Transition> transitions() { return kTransitions; }
ReplicaState transition(ReplicaState from, ReplicaState to) { return kReplicaStates.transition(from, to); }

}  // namespace ebb::planner
