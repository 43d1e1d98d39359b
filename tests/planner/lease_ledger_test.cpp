#include "planner/lease_ledger.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <ranges>
#include <set>
#include <string>

#include "tests/long_form.hpp"
#include "tests/planner/state_tables.hpp"
#include "tests/planner/units.hpp"

namespace ebb::planner {
namespace {

namespace lend = lease_event;
using Commands = std::vector<LeaseCommand>;

constexpr Bytes kPiece = kSmallestLease;

std::string lease_text(const Commands& commands) {
  constexpr const char* kNames[] = {"grant", "recall", "overdue", "free"};
  std::string out;
  for (const auto& [kind, lease] : commands) {
    out += (out.empty() ? "" : " ") + std::string(kNames[kind]) + std::to_string(lease.id) + ":" +
           std::to_string(lease.lender) + ">" + std::to_string(lease.borrower);
  }
  return out;
}

TEST(LeaseTable, WhatTheTableHasIsLegalAndAllElseThrows) {
  expect_is_the_law(lease_transitions(), LeaseState::orphaned);
}

TEST(LeaseLedger, NothingIsLentWithoutAnOfferNorToOneWhoDoesNotAsk) {
  LeaseLedger ledger;
  EXPECT_EQ(lease_text(ledger.on(0, lend::Borrow{1, 10 * kPiece})), "");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Offer{2, kPiece - 1})), "");  // less than a lease
  EXPECT_EQ(lease_text(ledger.on(0, lend::Offer{1, kPiece})), "");      // its own memory
  EXPECT_EQ(lease_text(ledger.on(0, lend::Offer{2, kPiece})), "grant1:2>1");
  EXPECT_THROW(ledger.on(0, lend::Offer{.lender = 2, .bytes = kPiece, .piece = kPiece - 1}), std::logic_error);
  EXPECT_THROW(ledger.on(0, lend::Borrow{1, kPiece, kPiece - 1}), std::logic_error);
}

TEST(LeaseLedger, BorrowersAndLendersShareEvenly) {
  LeaseLedger ledger;
  ledger.on(0, lend::Offer{1, 2 * kPiece});
  ledger.on(0, lend::Offer{2, 4 * kPiece});
  ledger.on(0, lend::Borrow{7, kPiece});
  EXPECT_EQ(lease_text(ledger.on(0, lend::Borrow{8, 9 * kPiece})),
            "grant2:2>8 grant3:1>8 grant4:2>8 grant5:1>8 grant6:2>8");
  EXPECT_EQ(ledger.borrowed_by(7), kPiece);
  EXPECT_EQ(ledger.link_of(2, 7) + ledger.link_of(2, 8), kWholeLink);
  EXPECT_EQ(ledger.link_of(2, 7), kWholeLink / 4);
}

// A lender sees many come and go.
TEST(LeaseLedger, OfABorrowerThatHasEndedNothingIsKept) {
  LeaseLedger ledger;
  ledger.on(0, lend::Offer{1, kPiece});
  ledger.on(0, lend::Borrow{7, kPiece});
  EXPECT_EQ(lease_text(ledger.on(0, lend::BorrowerDied{7})), "");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Borrow{7, kPiece})), "");
  EXPECT_EQ(lease_text(ledger.on(0, lend::BorrowerEnded{7})), "free1:1>7");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Borrow{7, kPiece})), "grant2:1>7") << "another one";
}

TEST(LeaseLedger, ALeaseIsNoLargerThanEitherSideSays) {
  LeaseLedger ledger;
  ledger.on(0, lend::Borrow{7, 3 * kPiece, kPiece});
  EXPECT_EQ(lease_text(ledger.on(0, lend::Offer{1, 4 * kPiece, 2 * kPiece})), "grant1:1>7 grant2:1>7 grant3:1>7");
  ledger.on(0, lend::Offer{1, 5 * kPiece, 2 * kPiece});
  EXPECT_EQ(ledger.on(0, lend::Borrow{8, 9 * kPiece}).front().lease.bytes, 2 * kPiece);
}

TEST(LeaseLedger, WhatIsReturnedCanBeLentAgainAndALesserOfferRecallsTheNewest) {
  LeaseLedger ledger;
  ledger.on(0, lend::Borrow{7, 9 * kPiece});
  ledger.on(0, lend::Offer{1, 2 * kPiece});
  EXPECT_EQ(lease_text(ledger.on(1, lend::Return{1})), "free1:1>7 grant3:1>7");
  EXPECT_EQ(lease_text(ledger.on(2, lend::Offer{.lender = 1, .bytes = kPiece, .deadline = 100})), "recall3:1>7");
  EXPECT_EQ(ledger.next_deadline(), 100);
  EXPECT_EQ(lease_text(ledger.on(3, lend::Return{3})), "free3:1>7");
  EXPECT_EQ(lease_text(ledger.on(3, lend::Return{3})), "");  // said twice
  EXPECT_EQ(ledger.next_deadline(), kNever);
}

TEST(LeaseLedger, WhatCannotBeUsedIsNotOfferedAgain) {
  LeaseLedger ledger;
  ledger.on(0, lend::Borrow{7, kPiece});
  ledger.on(0, lend::Offer{1, kPiece});
  EXPECT_EQ(lease_text(ledger.on(0, lend::Return{.lease = 1, .unusable = true})), "free1:1>7");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Borrow{8, kPiece})), "grant2:1>8");
}

TEST(LeaseLedger, PastItsDeadlineTheLenderHearsOfItAndTheBytesAreNotFree) {
  LeaseLedger ledger;
  ledger.on(0, lend::Borrow{7, kPiece});
  ledger.on(0, lend::Offer{1, kPiece});
  ledger.on(0, lend::Recall{1, 100});
  EXPECT_EQ(lease_text(ledger.on(99, lend::Tick{})), "");
  const Commands late = ledger.on(100, lend::Tick{});
  EXPECT_EQ(lease_text(late), "overdue1:1>7");
  EXPECT_EQ(late[0].lease.bytes, kPiece);
  EXPECT_EQ(lease_text(ledger.on(200, lend::Tick{})), "");
  EXPECT_EQ(lease_text(ledger.on(200, lend::Borrow{8, kPiece})), "");
  EXPECT_EQ(ledger.lent_by(1), kPiece);
  EXPECT_EQ(lease_text(ledger.on(300, lend::Return{1})), "free1:1>7");  // the lender has it back, and lends less now
}

TEST(LeaseLedger, ADeadBorrowersLeaseIsLentAgainOnlyOnceItsChildrenHaveEndedToo) {
  LeaseLedger ledger;
  ledger.on(0, lend::Borrow{7, kPiece});
  ledger.on(0, lend::Offer{1, kPiece});
  ledger.on(0, lend::Borrow{8, kPiece});
  EXPECT_EQ(lease_text(ledger.on(0, lend::BorrowerDied{7})), "");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Return{1})), "");  // a child says so, which is not the borrower
  EXPECT_EQ(lease_text(ledger.on(0, lend::BorrowerEnded{7})), "free1:1>7 grant2:1>8");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Borrow{7, kPiece})), "");
}

TEST(LeaseLedger, ADeadLendersMemoryIsRecalledWithTheOrdinaryDeadline) {
  LeaseLedger ledger;
  ledger.on(0, lend::Borrow{7, 9 * kPiece});
  ledger.on(0, lend::Offer{1, 2 * kPiece});
  EXPECT_EQ(lease_text(ledger.on(0, lend::LenderDied{1, 50})), "recall1:1>7 recall2:1>7");
  EXPECT_EQ(lease_text(ledger.on(0, lend::Return{1})), "free1:1>7");
  EXPECT_EQ(lease_text(ledger.on(60, lend::Tick{})), "overdue2:1>7");
}

// Random events against what each lender's memory can hold: a piece has one owner at a time, nobody has more than was
// offered or asked for, and in the end all that was recalled has come back.
class LeaseWorld {
 public:
  explicit LeaseWorld(std::uint64_t seed) : random_(seed) {}

  void step() {
    now_ += static_cast<Time>(pick(0, 3));
    const auto lender = static_cast<PartyId>(pick(1, 3)), borrower = static_cast<PartyId>(pick(3, 6));
    switch (pick(0, 9)) {
      case 0: offer(lender, pick(0, 6) * kPiece); break;
      case 1: request(borrower, pick(0, 8) * kPiece); break;
      case 2: die(borrower); break;
      case 3: submit(lend::LenderDied{lender, now_ + 5}), offered_[lender] = 0; break;
      case 4: submit(lend::Tick{}); break;
      case 5:
        if (const auto lease = any()) recall(*lease);
        break;
      default:
        if (const auto lease = any()) submit(lend::Return{*lease, pick(0, 50) == 0});
    }
    check();
  }

  // Everyone gives back what they have, those that are dead by ending.
  void finish() {
    for (PartyId lender = 1; lender <= 3; ++lender) offer(lender, 0);
    for (const PartyId borrower : std::set(dead_)) end(borrower);
    while (!owner_.empty()) submit(lend::Return{owner_.begin()->first});
    EXPECT_TRUE(ledger_.leases().empty());
    EXPECT_TRUE(recalled_.empty());
    submit(lend::Tick{});
    EXPECT_EQ(ledger_.next_deadline(), kNever);
  }
  std::uint64_t granted() const { return granted_; }

 private:
  Bytes pick(int low, int high) { return static_cast<Bytes>(std::uniform_int_distribution<int>(low, high)(random_)); }
  Time later() { return now_ + static_cast<Time>(pick(0, 9)); }
  std::optional<LeaseId> any() {
    if (owner_.empty()) return {};
    auto at = owner_.begin();
    std::advance(at, pick(0, static_cast<int>(owner_.size()) - 1));
    return at->first;
  }
  PartyId alive(PartyId borrower) const { return borrower + 10 * lives_.at(borrower); }

  void offer(PartyId lender, Bytes bytes) {
    offered_[lender] = bytes;
    submit(lend::Offer{lender, bytes, kPiece * (lender == 2 ? 2 : 1), kWholeLink / 2, later()});
  }
  void recall(LeaseId id) {
    const Lease lease = ledger_.leases().at(id);
    if (lease.state == LeaseState::lent) offered_[lease.lender] -= std::min(offered_[lease.lender], lease.bytes);
    submit(lend::Recall{id, later()});
  }
  void request(PartyId borrower, Bytes bytes) {
    wanted_[alive(borrower)] = bytes;
    submit(lend::Borrow{alive(borrower), bytes, borrower == 5 ? kPiece : UINT64_MAX});
  }
  // Twice: at first its process alone ends.
  void die(PartyId borrower) {
    const PartyId id = alive(borrower);
    if (dead_.contains(id)) return end(id), void(++lives_[borrower]);
    dead_.insert(id);
    submit(lend::BorrowerDied{id});
  }
  void end(PartyId id) {
    ended_ = id;
    submit(lend::BorrowerEnded{id});
    ended_ = 0;
    dead_.erase(id);
  }

  void submit(const lend::Any& event) {
    const auto* returned = std::get_if<lend::Return>(&event);
    for (const auto& [kind, lease] : ledger_.on(now_, event)) {
      if (kind == LeaseCommand::grant) {
        ++granted_;
        ASSERT_TRUE(owner_.try_emplace(lease.id, lease.borrower).second);
        ASSERT_FALSE(dead_.contains(lease.borrower));
        ASSERT_LE(ledger_.lent_by(lease.lender), offered_[lease.lender]);
        ASSERT_LE(ledger_.borrowed_by(lease.borrower), wanted_[lease.borrower]);
        ASSERT_GE(lease.bytes, kSmallestLease);
      } else if (kind == LeaseCommand::recall) {
        ASSERT_TRUE(recalled_.insert(lease.id).second);
      } else if (kind == LeaseCommand::overdue) {
        ASSERT_TRUE(owner_.contains(lease.id));  // it is not free
      } else {
        // Only its owner's word frees it, or the end of all that may use it.
        const bool said = returned != nullptr && returned->lease == lease.id && !dead_.contains(lease.borrower);
        ASSERT_TRUE(said || ended_ == lease.borrower);
        ASSERT_EQ(owner_.erase(lease.id), 1u);
        recalled_.erase(lease.id);
      }
    }
  }

  void check() {
    ASSERT_EQ(ledger_.leases().size(), owner_.size());
    for (const Lease& lease : ledger_.leases() | std::views::values) {
      ASSERT_EQ(owner_.at(lease.id), lease.borrower);
      ASSERT_TRUE(lease.deadline > now_) << "a deadline has passed, and nobody was told";
      const bool asked_for = lease.state == LeaseState::recalled || lease.state == LeaseState::overdue;
      ASSERT_TRUE(!asked_for || recalled_.contains(lease.id));
    }
    for (PartyId lender = 1; lender <= 3; ++lender) {
      Bytes lent = 0, link = 0;
      std::set<PartyId> to;
      for (const Lease& lease : ledger_.leases() | std::views::values) {
        if (lease.lender != lender) continue;
        if (lease.state == LeaseState::lent) lent += lease.bytes;
        to.insert(lease.borrower);
      }
      for (const PartyId borrower : to) link += ledger_.link_of(lender, borrower);
      ASSERT_LE(lent, offered_[lender]);
      ASSERT_LE(link, kWholeLink / 2);
    }
  }

  std::mt19937_64 random_;
  LeaseLedger ledger_;
  Time now_ = 0;
  std::map<PartyId, Bytes> offered_, wanted_;
  std::map<PartyId, PartyId> lives_{{3, 0}, {4, 0}, {5, 0}, {6, 0}};
  std::set<PartyId> dead_;
  PartyId ended_ = 0;
  std::map<LeaseId, PartyId> owner_;
  std::set<LeaseId> recalled_;
  std::uint64_t granted_ = 0;
};

TEST(LeaseLedger, NoLeaseIsAboveItsBudgetNorHasTwoOwnersAndEveryRecallEnds) {
  const std::uint64_t worlds = long_form() ? 1000 : 20;  // of 1000 events each
  std::uint64_t granted = 0;
  for (std::uint64_t seed = 0; seed < worlds; ++seed) {
    LeaseWorld world(seed);
    for (int i = 0; i < 1000; ++i) {
      world.step();
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", event " << i;
    }
    world.finish();
    granted += world.granted();
  }
  EXPECT_GT(granted, 50 * worlds);
}

}  // namespace
}  // namespace ebb::planner
