#include "planner/lease.hpp"

namespace ebb::policy {
namespace {

using L = LeaseState;

constexpr LeaseTransition kLeaseTable[] = {
    {L::gone, L::lent, "grant", "the lender's budget has room, and the borrower wants more than it has"},
    {L::lent, L::recalled, "recall", "the lender lends less, is dead, or the store closes"},
    {L::lent, L::gone, "return", "no copy of the borrower's is under way there, and its mapping is gone"},
    {L::lent, L::orphaned, "death of the borrower", "its process has ended"},
    {L::recalled, L::gone, "return", "no copy of the borrower's is under way there, and its mapping is gone"},
    {L::recalled, L::overdue, "deadline", "the lender is told the borrower and the bytes"},
    {L::recalled, L::orphaned, "death of the borrower", "its process has ended"},
    {L::overdue, L::gone, "return", "no copy of the borrower's is under way there, and its mapping is gone"},
    {L::overdue, L::orphaned, "death of the borrower", "its process has ended"},
    {L::orphaned, L::gone, "end of the borrower", "every forked child that has its descriptors has ended too"},
};

constexpr StateTable<LeaseState, 5> kLeaseStates("a lease", {"gone", "lent", "recalled", "overdue", "orphaned"},
                                                 kLeaseTable);

}  // namespace

const char* name_of(LeaseState state) { return kLeaseStates.name_of(state); }
std::span<const LeaseTransition> lease_transitions() { return kLeaseTable; }
LeaseState transition(LeaseState from, LeaseState to) { return kLeaseStates.transition(from, to); }

}  // namespace ebb::policy
