// Prints docs/lifecycle.md from the table that the planner runs by, so that the page cannot tell another story.
#include <cstdio>
#include <string>

#include "planner/lifecycle.hpp"

namespace {

using ebb::policy::name_of;
using ebb::policy::ReplicaState;

// The diagram's own name for the state in which there is no replica.
std::string node(ReplicaState state) { return state == ReplicaState::gone ? "[*]" : name_of(state); }

}  // namespace

int main() {
  std::puts(
      "# The life cycle of a replica\n\n"
      "<!-- Made by `make docs` from src/planner/lifecycle.cpp; a test compares them. Change the table, not this page. "
      "-->\n\n"
      "A **replica** is one checkpoint on one tier (HPDC'23, section 4.1.3). Its state is a picture of four facts: "
      "which of its\n"
      "bytes are there, whether they are safe below, how many copies use them, and whether somebody still wants them.\n"
      "A transition that is not in this table throws, in every build. The state alone never permits eviction: a "
      "replica may go\n"
      "when it is complete, nothing uses it, nobody wants it, and it is safe, discarded, or consumed in an ephemeral "
      "store.\n\n"
      "```mermaid\n"
      "stateDiagram-v2");
  for (const auto& t : ebb::policy::transitions())
    std::printf("  %s --> %s: %s\n", node(t.from).c_str(), node(t.to).c_str(), t.cause);
  std::puts("```\n");
  std::puts("| from | to | brought about by | only if |\n|---|---|---|---|");
  for (const auto& t : ebb::policy::transitions())
    std::printf("| `%s` | `%s` | %s | %s |\n", name_of(t.from), name_of(t.to), t.cause, t.precondition);
  return std::ferror(stdout) ? 1 : 0;
}
