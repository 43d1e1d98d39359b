#include "planner/lease.hpp"

namespace ebb::planner {
namespace {

using L = LeaseState;

constexpr LeaseTransition kLeaseTable[] = {
    {L::gone, L::lent, "grant", "the lender offers more than it has lent, and the borrower wants more than it has"},
    {L::lent, L::recalled, "recall", "the lender lends less or closes its store, or its process has ended"},
    {L::lent, L::gone, "return", "the borrower has no copy under way there, and has unmapped the memory"},
    {L::lent, L::orphaned, "death of the borrower", "its process has ended"},
    {L::recalled, L::gone, "return", "the borrower has no copy under way there, and has unmapped the memory"},
    {L::recalled, L::overdue, "deadline", "the deadline has passed; the lender is told the process and the bytes"},
    {L::recalled, L::orphaned, "death of the borrower", "its process has ended"},
    {L::overdue, L::gone, "return", "the borrower has no copy under way there, and has unmapped the memory"},
    {L::overdue, L::orphaned, "death of the borrower", "its process has ended"},
    {L::orphaned, L::gone, "end of the borrower", "its forked children, which have its descriptors, have ended too"},
};

constexpr StateTable<LeaseState, 5> kLeaseStates("a lease", {"gone", "lent", "recalled", "overdue", "orphaned"},
                                                 kLeaseTable);

}  // namespace

const char* name_of(LeaseState state) { return kLeaseStates.name_of(state); }
std::span<const LeaseTransition> lease_transitions() { return kLeaseTable; }
LeaseState transition(LeaseState from, LeaseState to) { return kLeaseStates.transition(from, to); }

}  // namespace ebb::planner
