#pragma once
// Cache memory that the application gives back in stream order.
#include <memory>
#include <optional>
#include <variant>

#include "planner/recycled.hpp"
#include "store/digests.hpp"
#include "store/handles.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"
#include "store/streams.hpp"
#include "transfer/copy_engine.hpp"

namespace ebb::store {

/// What was committed or released and is still in use: by a stream, or by who holds its handle.
///
/// Thread safety: every method takes the port's Locked.
/// 1. An end is submitted once: when its stream is done, and its handle has ended if that was held on to.
class HandBacks {
 public:
  using End = std::variant<planner::event::Commit, planner::event::Release, planner::event::Abandon>;
  HandBacks(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, Streams& streams)
      : port_(port), lifetime_(lifetime), catalog_(catalog), streams_(streams) {}

  /// Submits `end` once `stream` (if any) has done what it holds now, which `engine` follows. `held`: the memory is in
  /// use until end_hold(). `check`: of a commit, whose digest comes with the stream.
  Result<void> hand_back(Locked& locked, transfer::CopyEngine& engine, Hold& hold,
                         std::optional<device::StreamId> stream, End end, bool held, std::shared_ptr<Check> check = {});
  /// The memory that was handed back with `held` is in use no longer.
  void end_hold(const Locked& locked, Hold& hold);
  /// The stream has got there.
  void stream_done(const Locked& locked, std::uint64_t key, const Result<void>& result);
  void clear(const Locked& /*locked*/) { handed_back_.clear(); }

 private:
  struct HandedBack {
    planner::HistoryId history = 0;
    Version version = 0;
    End end;  // when the stream is done
    bool stream_done = false, held = false;
    std::shared_ptr<Check> check;
  };
  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  Streams& streams_;
  // By the port's mutex.
  planner::RecycledHashMap<std::uint64_t, HandedBack> handed_back_;
  std::uint64_t next_ = 1;
};

}  // namespace ebb::store
