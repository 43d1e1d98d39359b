#include "planner/lease.hpp"

#include <array>
#include <stdexcept>
#include <string>

namespace ebb::policy {
namespace {

using L = LeaseState;

constexpr LeaseTransition kLeaseTable[] = {
    {L::gone, L::lent, "grant", "the lender offers more than it has lent, and the borrower wants more than it has"},
    {L::lent, L::recalled, "recall", "the lender lends less or closes its store, or its process has ended"},
    {L::lent, L::gone, "return", "the borrower has no copy under way there, and has unmapped the memory"},
    {L::lent, L::orphaned, "death of the borrower", "its process has ended"},
    {L::recalled, L::gone, "return", "the borrower has no copy under way there, and has unmapped the memory"},
    {L::recalled, L::overdue, "deadline", "it has passed; the lender is told the process and the bytes"},
    {L::recalled, L::orphaned, "death of the borrower", "its process has ended"},
    {L::overdue, L::gone, "return", "the borrower has no copy under way there, and has unmapped the memory"},
    {L::overdue, L::orphaned, "death of the borrower", "its process has ended"},
    {L::orphaned, L::gone, "end of the borrower", "its forked children, which have its descriptors, have ended too"},
};

constexpr int kLeaseStates = 5;

constexpr auto make_lease_matrix() {
  std::array<std::array<bool, kLeaseStates>, kLeaseStates> matrix{};
  for (const LeaseTransition& t : kLeaseTable) matrix[static_cast<int>(t.from)][static_cast<int>(t.to)] = true;
  return matrix;
}
constexpr auto kLeaseAllowed = make_lease_matrix();

}  // namespace

const char* name_of(LeaseState state) {
  constexpr const char* kNames[kLeaseStates] = {"gone", "lent", "recalled", "overdue", "orphaned"};
  return kNames[static_cast<int>(state)];
}

std::span<const LeaseTransition> lease_transitions() { return kLeaseTable; }

LeaseState transition(LeaseState from, LeaseState to) {
  if (!kLeaseAllowed[static_cast<int>(from)][static_cast<int>(to)])
    throw std::logic_error(std::string("illegal transition of a lease: ") + name_of(from) + " to " + name_of(to));
  return to;
}

}  // namespace ebb::policy
