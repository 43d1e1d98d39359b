#pragma once
// How much of this process's own cache others may have, for as long as it does not use that itself. Of a tier's
// segments, event::Spare names the pieces that may be given away; the segments before them never are.
#include "planner/events.hpp"
#include "planner/segments.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

// The application's calls have left the cache alone for so long: it rests.
inline constexpr Time kSpareAfter = 100'000'000;

// Between two looks at what is spare, which pass over all hints, unless a burst begins or a call waits for room.
inline constexpr Time kSpareLook = 10'000'000;

// Bursts without lending after one in which pieces came back later than kReturnWithin. Others then checkpoint when this
// process does, and a burst may take twice as long without the pieces: once in so many, that is no more than 3%.
inline constexpr std::uint32_t kPauseAfterLate = 32;

// Output::spare says how many pieces others may have, and Output::returned which of them are empty. A piece comes back
// with event::Lend.
// 1. Nothing is given away but pieces in which all replicas are spare and no hint names any, while the cache rests and
//    no call waits for room. They are empty with the same event.
// 2. What is kept: all that is not spare, what hints name, and two of the largest checkpoint. While the cache is used
//    also as much as the burst before took; all of it, until there was one. A burst has no rest in it.
// 3. After a burst in which they came back late, nothing is given away for kPauseAfterLate bursts.
// 4. A call that waits for room waits for pieces as for a transfer, but no longer than kRecallWithin after they were
//    asked for.
class SpareRoom : Decider {
 public:
  SpareRoom(State& state, Segments& segments) : Decider(state), segments_(segments) {}

  void on(HistoryId client, const event::Spare& e);
  bool any() const { return pieces_ > 0; }
  // Any event was taken.
  void after(const event::Any& event);
  void plan();
  // Pieces are on their way back.
  bool coming() const { return context_.now < back_by_; }

 private:
  SegmentId piece(std::uint32_t n) const { return static_cast<SegmentId>(first_ + n); }
  bool away(std::uint32_t n) const { return space_.usable(tier_, piece(n)) == 0; }
  void note_use(Bytes written);
  std::uint32_t allowed(std::uint32_t away, bool rests, bool waited_for) const;
  void give(std::uint32_t most);
  Bytes needed() const;
  bool idle(SegmentId segment) const;

  Segments& segments_;
  TierIndex tier_ = 0;
  SegmentId first_ = 0;
  std::uint32_t pieces_ = 0;
  Bytes bytes_ = 0;  // of a piece
  bool wanted_ = false;
  std::uint32_t allowed_ = 0;  // pieces that others may have
  Time used_at_ = -kSpareAfter, look_at_ = 0;
  Bytes largest_ = 0;
  Bytes burst_ = 0, before_ = UINT64_MAX;  // written in this burst, and in the one before
  Time back_by_ = 0, late_by_ = kNever;    // of what others are to return
  std::uint32_t pause_ = 0;                // bursts without lending that are left
};

}  // namespace ebb::planner
