#include "reliability/cpp/judge.hpp"

#include <algorithm>
#include <set>

namespace ebb::trials {
namespace {

using EventKind = Event::Kind;

// One version of one history, as the events up to a moment tell it.
struct Known {
  std::set<std::size_t> allowed;  // writings that may be offered
  std::optional<std::size_t> required;
  std::size_t last = 0;                  // writing
  bool dropped = false;                  // the last of them was, by name, since the store was opened
  bool undead = false;                   // it was before that, and the power was lost first
  bool begun = false, reported = false;  // the last of them was
  bool may_be_gone = false;              // retention may have dropped it, now or earlier
};

class Judgement {
 public:
  Judgement(const Script& script, const Seen& seen, const Rules& rules) : script_(script), seen_(seen), rules_(rules) {}

  Verdict run(const std::vector<Event>& events) && {
    for (const Event& event : events) take(event);
    for (const std::string& history : script_.histories()) compare(history);
    return std::move(out_);
  }

 private:
  using Versions = std::map<Version, Known>;

  void take(const Event& event) {
    if (event.kind == EventKind::opened) return open();
    if (event.kind == EventKind::closed) return close();
    const Made& made = script_.made.at(event.made);
    Versions& versions = known_[made.history];
    Known& one = versions[made.version];
    if (event.kind == EventKind::begun) {
      one.allowed.insert(event.made);
      one.last = event.made;
      one.dropped = one.undead = one.reported = false;
      one.begun = true;
    } else if (event.kind == EventKind::durable || event.kind == EventKind::sent) {
      if (rules_.sent_alone && event.kind != EventKind::sent) return;
      if (one.dropped || one.last != event.made) return;  // told while it was being dropped
      one.required = event.made;
      if (rules_.kept) one.allowed = {event.made};
      one.reported = true;
    } else if (event.kind == EventKind::lost) {
      one.allowed.erase(event.made);
    } else {
      one.required.reset();
      one.dropped = true;
    }
    retain(versions);
  }

  // As many newer ones as are to be kept may be durable by now.
  void retain(Versions& versions) const {
    if (script_.keep_last == 0) return;
    std::uint64_t newer = 0;
    for (auto at = versions.rbegin(); at != versions.rend(); ++at) {
      const bool marked = script_.keep_every && at->first % static_cast<Version>(script_.keep_every) == 0;
      if (newer >= script_.keep_last && !marked) at->second.may_be_gone = true;
      if (at->second.begun) ++newer;
    }
  }

  // A drop that was not carried out by now is none.
  void open() {
    for (auto& [history, versions] : known_) {
      for (auto& [version, one] : versions) {
        one.undead = one.undead || one.dropped;
        one.dropped = false;
      }
    }
  }

  void close() {
    if (!rules_.kept || !rules_.final_drops) return;
    for (auto& [history, versions] : known_) {
      for (auto& [version, one] : versions) {
        if (one.dropped) one.allowed.clear();
      }
    }
  }

  void wrong(Outcome outcome, const std::string& history, Version version, const std::string& what) {
    worst(outcome);
    out_.violations.push_back(name_of({history, version, 0, 0}) + ": " + what);
  }
  void worst(Outcome outcome) { out_.outcome = std::max(out_.outcome, outcome); }

  void compare(const std::string& history) {
    static const std::map<Version, Result<Bytes>> kNone;
    const auto found = seen_.offered.find(history);
    const auto& offered = found == seen_.offered.end() ? kNone : found->second;
    std::optional<Version> newest;
    for (const auto& [version, bytes] : offered) {
      if (compare_one(history, version, bytes)) newest = version;
    }
    const Versions& versions = known_[history];
    for (auto at = versions.rbegin(); at != versions.rend(); ++at) {
      const auto& [version, one] = *at;
      const bool there = offered.contains(version);
      if (rules_.kept && rules_.there && one.required && !one.may_be_gone && !there) {
        wrong(Outcome::silent_wrong, history, version,
              "it was reported durable, and is not there (" + std::to_string(script_.made[*one.required].bytes) +
                  " bytes)");
      }
      if (!there && !one.dropped && !one.undead && !one.may_be_gone) worst(Outcome::older_exact);
    }
    if (script_.keep_last && rules_.kept && rules_.there) count_kept(history, versions, offered);
    const auto latest = seen_.latest.find(history);
    if (latest == seen_.latest.end()) return;
    if (!latest->second) {
      worst(Outcome::clear_error);
      if (rules_.whole) wrong(Outcome::clear_error, history, -1, "latest() failed: " + latest->second.error().message);
    } else if (*latest->second != newest) {
      wrong(Outcome::silent_wrong, history, newest.value_or(-1),
            "is the newest intact one, and latest() says " + std::to_string((*latest->second).value_or(-1)));
    }
  }

  // Of what was reported durable, as many are there as are to be kept, none older than the store may keep.
  void count_kept(const std::string& history, const Versions& versions,
                  const std::map<Version, Result<Bytes>>& offered) {
    std::uint64_t reported = 0, there = 0;
    Version oldest = 0;
    for (auto at = versions.rbegin(); at != versions.rend() && reported < script_.keep_last; ++at) {
      if (!at->second.reported) continue;
      ++reported;
      oldest = at->first;
    }
    for (const auto& [version, bytes] : offered) there += bytes && version >= oldest ? 1 : 0;
    if (there < reported) {
      wrong(Outcome::silent_wrong, history, oldest,
            "retention keeps " + std::to_string(script_.keep_last) + ", and from here on there are " +
                std::to_string(there));
    }
  }

  // Whether it can be read.
  bool compare_one(const std::string& history, Version version, const Result<Bytes>& bytes) {
    const auto of = known_[history].find(version);
    if (!bytes) {
      worst(Outcome::clear_error);
      if (rules_.whole) wrong(Outcome::clear_error, history, version, "it is offered, and: " + bytes.error().message);
      return false;
    }
    if (of == known_[history].end()) {
      wrong(Outcome::silent_wrong, history, version, "nobody wrote it");
      return true;
    }
    for (const std::size_t made : of->second.allowed) {
      if (script_.contents(script_.made[made]) == *bytes) return true;
    }
    bool once = false;
    for (std::size_t i = 0; i < script_.made.size(); ++i) {
      const Made& made = script_.made[i];
      once = once || (made.history == history && made.version == version && script_.contents(made) == *bytes);
    }
    wrong(Outcome::silent_wrong, history, version,
          !once                        ? "its bytes are wrong"
          : of->second.allowed.empty() ? "it was dropped for good, or lost, and is there"
                                       : "an older writing of it is there");
    return true;
  }

  const Script& script_;
  const Seen& seen_;
  const Rules& rules_;
  std::map<std::string, Versions> known_;
  Verdict out_;
};

}  // namespace

std::string name_of(const Made& made) {
  std::string history = made.history;
  std::ranges::replace_if(history, [](char c) { return c < ' ' || c > '~'; }, '?');
  return "version " + std::to_string(made.version) + " of \"" + history + "\"";
}

Seen look(Subject& store, const std::vector<std::string>& histories) {
  Seen seen;
  for (const std::string& history : histories) {
    seen.latest.emplace(history, store.latest(history));
    for (const Version version : store.versions(history)) {
      seen.offered[history].emplace(version, store.read(history, version));
    }
  }
  return seen;
}

Verdict judge(const Script& script, const std::vector<Event>& events, const Seen& seen, const Rules& rules) {
  return Judgement(script, seen, rules).run(events);
}

}  // namespace ebb::trials
