#pragma once
// Who lends how much memory to whom. Events go in, each with its time, and commands come out; as the planner, it has no
// clock, thread or descriptor. Each end of a lease keeps one: a lender of all that it lends, a borrower of all that it
// has on loan.
#include <functional>
#include <map>
#include <variant>
#include <vector>

#include "planner/ids.hpp"
#include "planner/lease.hpp"

namespace ebb::planner {

using LeaseId = std::uint32_t;

// The smallest lease. Memory is lent ahead in few large pieces: no checkpoint waits for one.
inline constexpr Bytes kSmallestLease = Bytes{64} << 20;

// How long a borrower has to move away what is on a lease that it returns, how long a lender waits for a lease that it
// recalls, and for all of them when it closes; and how often a borrower looks whether it can return something.
inline constexpr Time kReturnWithin = 1'000'000'000, kRecallWithin = 5'000'000'000, kRecallAtClose = 10'000'000'000;
inline constexpr Time kReturnLook = 5'000'000;

namespace lease_event {

// What a process lends in all, from now on, in leases of at most `piece`. Less than before: as many leases as that
// takes are recalled, the newest first.
struct Offer {
  PartyId lender = 0;
  Bytes bytes = 0;
  Bytes piece = kSmallestLease;     // at least kSmallestLease
  std::uint32_t link = kWholeLink;  // what its borrowers may use of its bandwidth, in millionths
  Time deadline = kNever;           // of what is recalled
};
// What a process borrows in all, at most, in leases of at most `piece`.
struct Borrow {
  PartyId borrower = 0;
  Bytes bytes = 0;
  Bytes piece = UINT64_MAX;  // at least kSmallestLease
};
// No copy of its borrower's is under way there, and its mapping is gone. `unusable`: it could not be used, and nothing
// of that lender's is granted to this borrower again.
struct Return {
  LeaseId lease = 0;
  bool unusable = false;
};
// The lender has the lease back, and offers so much less.
struct Recall {
  LeaseId lease = 0;
  Time deadline = kNever;
};
// A borrower has ended. What it borrowed may still be in use.
struct BorrowerDied {
  PartyId borrower = 0;
};
// Nor is there a forked child that has its descriptors.
struct BorrowerEnded {
  PartyId borrower = 0;
};
// What it lent can be read through its borrowers' mappings, and is recalled.
struct LenderDied {
  PartyId lender = 0;
  Time deadline = kNever;
};
struct Tick {};  // nothing but the time

using Any = std::variant<Tick, Offer, Borrow, Return, Recall, BorrowerDied, BorrowerEnded, LenderDied>;

}  // namespace lease_event

struct Lease {
  LeaseId id = 0;
  PartyId lender = 0, borrower = 0;
  Bytes bytes = 0;
  LeaseState state = LeaseState::gone;
  Time deadline = kNever;  // of a recall
};

struct LeaseCommand {
  enum Kind : std::uint8_t {
    grant,    // to the borrower: here is the memory
    recall,   // to the borrower: return it
    overdue,  // to the lender: it has not been returned in time, once for each lease
    free      // to the lender: these bytes can be allocated again
  } kind = grant;
  Lease lease;  // as it is now
};

// 1. The leases of a lender are never more than what it offers, but for those that are being recalled from it.
// 2. A lease has one borrower, from its grant until it is gone; its number is not used again.
// 3. The bytes of a lease are free only when it is gone: returned, or its borrower ended with all its children.
// 4. Every recall ends with `free`; past its deadline with `overdue` before that.
// 5. Nothing is kept of a borrower that has ended, nor of a lender that offers nothing and has lent nothing.
class LeaseLedger {
 public:
  // Events that name what there is not, such as a lease that was returned before, change nothing. Pieces below
  // kSmallestLease throw std::logic_error.
  std::vector<LeaseCommand> on(Time now, const lease_event::Any& event);

  // When the next deadline passes: it is to be told the time then. kNever: there is none.
  Time next_deadline() const;
  const std::map<LeaseId, Lease>& leases() const { return leases_; }
  Bytes lent_by(PartyId lender) const;
  Bytes borrowed_by(PartyId borrower) const;
  // What a borrower may use of a lender's bandwidth, in millionths: as much of what the lender offers as it has of the
  // leases, at least one; 0: it has none.
  std::uint32_t link_of(PartyId lender, PartyId borrower) const;

 private:
  struct Lender {
    Bytes bytes = 0, piece = kSmallestLease;
    std::uint32_t link = kWholeLink;
  };
  struct Borrower {
    Bytes wanted = 0, piece = UINT64_MAX;
    bool dead = false;
    std::vector<PartyId> unusable;  // lenders
  };

  void apply(const lease_event::Tick&) {}
  void apply(const lease_event::Offer& e);
  void apply(const lease_event::Borrow& e);
  void apply(const lease_event::Return& e);
  void apply(const lease_event::Recall& e);
  void apply(const lease_event::BorrowerDied& e);
  void apply(const lease_event::BorrowerEnded& e);
  void apply(const lease_event::LenderDied& e);

  void grant_what_fits();
  bool grant_one();
  bool may_lend(PartyId lender, PartyId borrower) const;
  void recall(Lease& lease, Time deadline);
  void recall_beyond(PartyId lender, Time deadline);
  void end(LeaseId lease);
  Bytes bytes_of(const std::function<bool(const Lease&)>& which) const;
  void tell_overdue(Time now);
  void say(LeaseCommand::Kind kind, const Lease& lease) { out_.push_back({kind, lease}); }

  std::map<PartyId, Lender> lenders_;
  std::map<PartyId, Borrower> borrowers_;
  std::map<LeaseId, Lease> leases_;
  LeaseId last_ = 0;
  std::vector<LeaseCommand> out_;
};

}  // namespace ebb::planner
