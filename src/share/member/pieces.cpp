#include "share/member/pieces.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace ebb::share {

void Pieces::add(StagedPiece piece) {
  if (piece.bytes > most_bytes_) {
    throw std::logic_error("a put of " + std::to_string(piece.bytes) + " bytes from outside of the pool: at most " +
                           std::to_string(most_bytes_) + " were announced");
  }
  waiting_.push_back(std::move(piece));
}

std::optional<Pieces::Refused> Pieces::send() {
  while (!waiting_.empty() && !paused_) {
    StagedPiece& piece = waiting_.front();
    if (!stage_.created()) {
      if (auto made = stage_.create(most_bytes_); !made) return Refused{piece.object, made.error()};
    }
    if (!known_) known_ = member_.send(message::Stage{stage_.bytes()}, stage_.fd());
    if (!known_ || !stage_.has_free()) break;
    const auto at = stage_.take(piece.bytes);
    if (!at && !moving_.empty()) break;  // with a slot that has memory already
    if (!at) return Refused{piece.object, at.error()};
    used_ = true;
    empty_ = false;
    std::memcpy(stage_.at(*at), piece.memory, piece.bytes);
    member_.send(message::Staged{piece.object, piece.offset, *at, piece.bytes, piece.description});
    moving_.push_back({std::move(piece), *at});
    waiting_.pop_front();
  }
  return {};
}

std::optional<Pieces::StagedPiece> Pieces::end(storage::ObjectId object, std::uint64_t offset) {
  const auto found = std::ranges::find_if(
      moving_, [&](const Moving& one) { return one.piece.object == object && one.piece.offset == offset; });
  if (found == moving_.end()) return {};
  StagedPiece piece = std::move(found->piece);
  stage_.give_back(found->at);
  moving_.erase(found);
  return piece;
}

std::vector<storage::Token> Pieces::take_waiting(storage::ObjectId object) {
  std::vector<storage::Token> tokens;
  for (const StagedPiece& piece : waiting_)
    if (piece.object == object) tokens.push_back(piece.token);
  std::erase_if(waiting_, [&](const StagedPiece& piece) { return piece.object == object; });
  return tokens;
}

std::set<storage::ObjectId> Pieces::lose_agent() {
  std::set<storage::ObjectId> objects;
  known_ = false;
  paused_ = true;
  while (!moving_.empty()) {
    stage_.give_back(moving_.back().at);
    objects.insert(moving_.back().piece.object);
    waiting_.push_front(std::move(moving_.back().piece));
    moving_.pop_back();
  }
  return objects;
}

void Pieces::rest() {
  if (std::exchange(used_, false) || empty_ || !idle()) return;
  stage_.clear();
  empty_ = true;
}

}  // namespace ebb::share
