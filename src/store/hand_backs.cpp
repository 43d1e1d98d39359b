#include "store/hand_backs.hpp"

#include "store/catalog.hpp"
#include "store/lifetime.hpp"
#include "store/tokens.hpp"

namespace ebb::store {
namespace {

constexpr auto request_of = [](const auto& end) {
  return std::visit([](const auto& what) { return what.request; }, end);
};

bool keeps(const HandBacks::End& end) {
  const auto* const release = std::get_if<planner::event::Release>(&end);
  return release != nullptr && release->keep;
}

}  // namespace

Result<void> HandBacks::hand_back(Locked& locked, transfer::CopyEngine& engine, Hold& hold,
                                  std::optional<device::StreamId> stream, End end, bool held,
                                  std::shared_ptr<Check> check) {
  const std::uint64_t key = next_++;
  handed_back_.emplace(key, HandedBack{hold.history, hold.version, end, false, held, std::move(check)});
  if (held) hold.handed_back = key;
  if (stream || (held && std::holds_alternative<planner::event::Release>(end))) {
    port_.submit(
        locked, hold.history,
        planner::event::Submit{.request = request_of(end), .keep = keeps(end), .by_stream = stream.has_value()});
  }
  Result<void> followed;
  if (stream) {
    lifetime_.begin(locked);
    locked.unlock();
    followed = engine.follow(*stream, kHandedBack | key);
    if (!followed) streams_.finish_everything();
    locked.lock();
    if (followed) return {};
    lifetime_.end(locked);
  }
  if (lifetime_.running(locked)) stream_done(locked, key, followed);
  return followed;
}

void HandBacks::stream_done(const Locked& locked, std::uint64_t key, const Result<void>& result) {
  const auto found = handed_back_.find(key);
  HandedBack& back = found->second;
  back.stream_done = true;
  if (back.check) back.check->settle();
  const planner::HistoryId history = back.history;
  const planner::RequestId request = request_of(back.end);
  if (auto* const commit = std::get_if<planner::event::Commit>(&back.end); commit != nullptr && result) {
    commit->in_use = back.held;
  } else if (commit != nullptr) {
    // What the application computed never was: the version was not written after all.
    catalog_.mark_lost(
        locked, history, back.version,
        {Errc::lost, catalog_.key_text(locked, history, back.version) +
                         " was taken in stream order, and its bytes never came: " + result.error().message});
    back.end = planner::event::Abandon{request};
  }
  const End end = back.end;
  const bool held = back.held;
  if (!held) handed_back_.erase(found);
  if (held && !std::holds_alternative<planner::event::Commit>(end)) {
    // The request ends with its handle: nothing ends by itself any more.
    return port_.submit(locked, history, planner::event::Submit{.request = request, .keep = keeps(end)});
  }
  std::visit([&](const auto& what) { port_.submit(locked, history, what); }, end);
}

void HandBacks::end_hold(const Locked& locked, Hold& hold) {
  const auto found = handed_back_.find(hold.handed_back);
  hold.handed_back = 0;
  if (found == handed_back_.end() || !lifetime_.running(locked)) return;
  HandedBack& back = found->second;
  back.held = false;
  if (!back.stream_done) return;
  const planner::HistoryId history = back.history;
  const End end = back.end;
  handed_back_.erase(found);
  if (const auto* const commit = std::get_if<planner::event::Commit>(&end)) {
    return port_.submit(locked, history, planner::event::Release{.request = commit->request});
  }
  std::visit([&](const auto& what) { port_.submit(locked, history, what); }, end);
}

}  // namespace ebb::store
