#include "store/background_worker.hpp"

#include "base/wait_points.hpp"
#include "store/application_copies.hpp"
#include "store/call_table.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/verifier.hpp"

namespace ebb::store {

void BackgroundWorker::join() {
  if (thread_.joinable()) EBB_WAIT(worker_joined, thread_.join());
}

void BackgroundWorker::run() {
  Locked locked = port_.lock();
  for (;;) {
    EBB_WAIT(worker_sleeps, wake_.wait(locked.native(), [&] {
      return lifetime_.closed(locked) || !copies_to_make_.empty() || !checks_.empty();
    }));
    if (lifetime_.closed(locked)) return;
    try {
      if (checks_.empty())
        copy_next(locked);
      else
        check_next(locked);
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
  }
}

void BackgroundWorker::check_next(Locked& locked) {
  const std::shared_ptr<Request> request = calls_.background(locked, checks_.front());
  checks_.pop_front();
  if (auto right = verifier_.check_handed_out(locked, *request, request->pieces, true); !right) {
    request->wrong = right.error();
  }
  if (!lifetime_.closed(locked)) calls_.end_background(locked, *request);  // else close() ends its future
}

void BackgroundWorker::copy_next(Locked& locked) {
  const planner::RequestId id = copies_to_make_.at(0);
  copies_to_make_.pop_front();
  const std::shared_ptr<Request> request = calls_.background(locked, id);
  copies_.copy_next(locked, *request);
  queues_.drain(locked);
}

}  // namespace ebb::store
