#include "cache/node_turn.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace ebb::memory {

bool NodeTurn::take(std::stop_token stop) {
  using std::chrono::microseconds;
  auto place = line_.enter();
  none_ = place ? std::string() : place.error().message;
  if (place) place_ = std::move(*place);
  // A turn is some hundred microseconds; when it has not come after a while, it is not worth looking so often.
  microseconds pause{50};
  while (place_ && !place_->poll()) {
    if (stop.stop_requested()) {
      place_.reset();
      return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 32, microseconds{1000});
  }
  return true;
}

}  // namespace ebb::memory
