#pragma once
// Whether what waits for a place in the file can still get one.
#include <optional>

#include "store/call_table.hpp"
#include "store/lifetime.hpp"

namespace ebb::store {

/// Asks the planner, for one checkpoint after the other, whether anything under way will still bring it to the file.
///
/// Thread safety: none of its own; the mutex is held whenever a method is called. Its answers notify
/// PlannerPort::ended().
class OnTheWay {
 public:
  OnTheWay(PlannerPort& port, const Lifetime& lifetime, CallTable& calls, const Locked& locked)
      : port_(port), lifetime_(lifetime), calls_(calls), locked_(locked) {}
  OnTheWay(const OnTheWay&) = delete;
  ~OnTheWay() { give_up(); }

  bool asked(planner::CheckpointRef checkpoint) const { return question_ && question_->checkpoint == checkpoint; }
  /// True: it had not asked for this one yet.
  bool ask(planner::HistoryId history, Version version, planner::CheckpointRef checkpoint) {
    if (asked(checkpoint)) return false;
    give_up();
    Question& question = question_.emplace(calls_, locked_, checkpoint);
    question.request.history = history;
    question.request.version = version;
    port_.submit(locked_, history, planner::event::Wait{question.request.id, version, port_.first_file()});
    return true;
  }
  bool never(planner::CheckpointRef checkpoint) const {
    return asked(checkpoint) && question_->request.answered && question_->request.answer.reason != planner::Reason::ok;
  }
  Error why_never(Catalog& catalog) const {
    const CallRow& request = question_->request;
    Error error = catalog.refusal(locked_, request.history, request.version, request.answer);
    error.message = catalog.key_text(locked_, request.history, request.version) +
                    " could not be handed over: " + request.answer.detail;
    return error;
  }

 private:
  struct Question {
    Question(CallTable& calls, const Locked& locked, planner::CheckpointRef of)
        : checkpoint(of), entered(calls, locked, request) {
      request.by_ended = true;
    }
    planner::CheckpointRef checkpoint;
    CallRow request;
    CallTable::Entered entered;
  };
  void give_up() {
    if (question_ && !question_->request.answered && !lifetime_.closed(locked_) && !port_.poisoned(locked_))
      port_.submit(locked_, question_->request.history, planner::event::Cancel{question_->request.id});
    question_.reset();
  }

  PlannerPort& port_;
  const Lifetime& lifetime_;
  CallTable& calls_;
  const Locked& locked_;
  std::optional<Question> question_;
};

}  // namespace ebb::store
