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
    try {
      const auto work = calls_.next_work(locked);
      if (!work) return;
      if (work->check) {
        check(locked, *work->request);
      } else {
        copies_.copy_next(locked, *work->request);
        queues_.drain(locked);
      }
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
  }
}

void BackgroundWorker::check(Locked& locked, CallRow& request) {
  if (auto right = verifier_.check_handed_out(locked, request, request.pieces, true); !right) {
    request.wrong = right.error();
  }
  if (!lifetime_.closed(locked)) calls_.end_background(locked, request);  // else close() ends its future
}

}  // namespace ebb::store
