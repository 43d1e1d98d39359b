#pragma once
// The way to the agent of what is not in the pool: piece by piece, through the stage.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "share/member/pool_member.hpp"
#include "share/member/stage.hpp"
#include "storage/storage.hpp"

namespace ebb::share {

/// Thread safety: none of its own.
/// 1. A piece waits until it has a slot of the stage, and has that until the agent has read it.
/// 2. Pieces get their slots in the order in which they were added.
class Pieces {
 public:
  struct StagedPiece {
    storage::Token token = 0;
    storage::ObjectId object = 0;
    std::uint64_t offset = 0;  // in the object
    const std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    std::string description = {};  // as in the pool; with the object's first piece alone
  };
  struct Refused {
    storage::ObjectId object = 0;
    Error error;
  };

  Pieces(PoolMember& member, std::uint64_t most_bytes) : member_(member), most_bytes_(most_bytes) {}

  /// Throws std::logic_error for a piece of more than `most_bytes`.
  void add(StagedPiece piece);
  /// As many as there are slots for. Refused: the object of the first that waits, for which the stage has no memory
  /// though none is under way.
  std::optional<Refused> send();
  /// The agent has read it. Nothing: it is not under way.
  std::optional<StagedPiece> end(storage::ObjectId object, std::uint64_t offset);
  /// Those of an object that wait are not sent any more. Their tokens.
  std::vector<storage::Token> take_waiting(storage::ObjectId object);
  /// The agent is gone. What was under way waits again, before all else, and nothing is sent until resume(): the next
  /// agent is to hear of the stage first, and of no object that the one before has written. Returns
  /// the objects of which something was under way.
  std::set<storage::ObjectId> lose_agent();
  void resume() { paused_ = false; }
  /// None waits, and none is under way.
  bool idle() const { return waiting_.empty() && moving_.empty(); }
  /// Gives the stage's memory back if no piece came since the last call.
  void rest();

 private:
  struct Moving {
    StagedPiece piece;
    std::uint64_t at = 0;  // in the stage
  };
  PoolMember& member_;
  const std::uint64_t most_bytes_;
  Stage stage_;
  std::deque<StagedPiece> waiting_;
  std::vector<Moving> moving_;
  bool known_ = false;  // the agent has the stage
  bool paused_ = false;
  bool used_ = false;  // since the last rest()
  bool empty_ = true;  // the stage has no memory
};

}  // namespace ebb::share
