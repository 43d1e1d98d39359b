#pragma once
// What was promised, against what is there.
#include <map>
#include <string>
#include <vector>

#include "reliability/cpp/script.hpp"
#include "reliability/cpp/subject.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {

/// All that an open store offers, read whole.
struct Seen {
  std::map<std::string, std::map<Version, Result<Bytes>>> offered;
  std::map<std::string, Result<std::optional<Version>>> latest;
};
Seen look(Subject& store, const std::vector<std::string>& histories);

struct Rules {
  bool kept = true;         // what was reported durable must be there
  bool final_drops = true;  // what was dropped before a close that succeeded is gone
  bool whole = true;        // what is offered must be readable: false where bytes were harmed on purpose
  bool there = true;        // what must be there is looked for: false where some of it was harmed on purpose
  bool sent_alone = false;  // only what was reported to be in the shared directory must be there
};

struct Verdict {
  Outcome outcome = Outcome::exact;
  std::vector<std::string> violations;
};

/// The promises:
/// 1. What is offered is, bit for bit, something that was written under that name; after the last of it was reported
///    durable, that one.
/// 2. What was reported durable and not dropped since is offered; of a store with retention, what it may not have
///    dropped, and at all times as many as it is to keep.
/// 3. What is offered can be read, and latest() is the newest of it.
/// 4. What was dropped before a close that succeeded is not offered after it.
/// 5. What was told to be lost is never offered.
Verdict judge(const Script& script, const std::vector<Event>& events, const Seen& seen, const Rules& rules = {});

std::string name_of(const Made& made);

}  // namespace ebb::trials
