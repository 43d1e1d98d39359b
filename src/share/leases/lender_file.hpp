#pragma once
// A file of shared memory by which a lender is found, and which says to whom it lends what.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/process_id.hpp"
#include "planner/lease_ledger.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

/// A store that lends memory: of a process, which may have several.
struct LenderName {
  std::string group;  // lending_group()
  os::ProcessId process;
  std::uint32_t number = 0;
  std::string file() const;
  std::string socket() const;
  /// Nothing: it is no lender's file.
  static std::optional<LenderName> of_file(std::string_view name);
  bool operator==(const LenderName&) const = default;
};

/// A lease, as the lender's file says.
struct LeaseRow {
  planner::LeaseId lease = 0;
  pid_t borrower = 0;
  std::uint64_t bytes = 0;
  planner::LeaseState state = planner::LeaseState::lent;
};

struct LenderState {
  std::optional<int> gpu = {};  // none: ordinary memory
  std::uint64_t offered = 0;
  std::uint32_t link = planner::kWholeLink;  // what all borrowers may use of its bandwidth, in millionths
  std::vector<LeaseRow> leases = {};
  std::uint64_t not_shown = 0;  // leases that its file has no room for
};

/// Written by the lender alone, a word at a time; whoever reads it may meet some of the words before a change and some
/// after it. The destructor removes the file.
/// Thread safety: one thread at a time.
class LenderFile {
 public:
  /// `wanted`: its number, or the next one that is free.
  static Result<LenderFile> create(std::shared_ptr<os::SharedMemory> memory, LenderName wanted);
  LenderFile(LenderFile&&) = default;
  ~LenderFile();
  const LenderName& name() const { return name_; }
  void write(const LenderState& state);

 private:
  LenderFile(std::shared_ptr<os::SharedMemory> memory, std::unique_ptr<os::SharedFile> held, LenderName name,
             os::SharedMapping words)
      : memory_(std::move(memory)), held_(std::move(held)), name_(std::move(name)), words_(std::move(words)) {}
  std::shared_ptr<os::SharedMemory> memory_;
  std::unique_ptr<os::SharedFile> held_;
  LenderName name_;
  os::SharedMapping words_;
};

/// Of this user on this node whose processes run in this PID namespace. Files of those that have ended are left alone.
Result<std::vector<LenderName>> find_lenders(os::SharedMemory& memory, os::Files& files);
/// Nothing: it is gone, or not written yet.
Result<std::optional<LenderState>> read_lender(os::SharedMemory& memory, const LenderName& name);
/// Removes the files and sockets that lenders left which have ended, in whichever PID namespace.
void remove_dead_lenders(const NodeSeams& seams, os::Files& files);

}  // namespace ebb::share
