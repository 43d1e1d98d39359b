#pragma once
// VELOC's client over a group of stores: a checkpoint name is a history, and a job of one process a group of one.
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>
#include <veloc.hpp>

#include "ebbtide/group.hpp"
#include "veloc/ahead.hpp"
#include "veloc/job.hpp"
#include "veloc/regions.hpp"
#include "veloc/routed_file.hpp"
#include "veloc/series.hpp"

namespace ebb::veloc {

/// The region of a version that the program wrote as a file, for which VELOC's files have no table.
inline constexpr std::uint32_t kFileRegion = 0x80000000;
inline constexpr std::size_t kNoSize = static_cast<std::size_t>(-1);

/// Thread safety: none; one thread at a time. Which calls are collective is said in veloc.h. A call that fails says so
/// on stderr.
class Client final : public ::veloc::client_t {
 public:
  explicit Client(Job job)
      : config_(std::move(job.config)),
        group_(std::move(job.group)),
        peers_(std::move(job.peers)),
        over_mpi_(job.over_mpi),
        relay_(std::move(job.relay)) {}
  ~Client() override;

  bool mem_protect(int id, void* ptr, std::size_t count, std::size_t base_size, const std::string& name) override;
  bool mem_protect(int id, const serializer_t& s, const deserializer_t& d, const std::string& name) override;
  bool mem_unprotect(int id, const std::string& name) override;
  void mem_clear(const std::string& name) override;
  bool register_observer(int type, const observer_t& obs) override;

  std::string route_file(const std::string& original) override;
  bool cleanup(const std::string& name) override;

  bool checkpoint(const std::string& name, int version) override;
  bool checkpoint_begin(const std::string& name, int version) override;
  bool checkpoint_mem(int mode, const std::set<int>& ids) override;
  bool checkpoint_end(bool success) override;
  bool checkpoint_wait() override;
  bool checkpoint_finished() override;

  int restart_test(const std::string& name, int version, int target_rank) override;
  bool restart(const std::string& name, int version, int target_rank) override;
  bool restart_begin(const std::string& name, int version, int target_rank) override;
  std::size_t recover_size(int id) override;
  bool recover_mem(int mode, const std::set<int>& ids) override;
  bool restart_end(bool success) override;

  bool protect_flagged(int id, void* ptr, std::size_t count, std::size_t base_size, unsigned flags,
                       void (*release)(void*));
  bool prefetch_enqueue(const std::string& name, int version);
  bool prefetch_start();
  bool prefetched(const std::string& name, int version, int id);
  /// Empty: it failed.
  std::string metrics();
  std::size_t saved_size(const std::string& name, int version, int id);
  /// Collective.
  bool close(bool drain);

 private:
  /// From Checkpoint_begin to Checkpoint_end.
  struct Writing {
    std::string name;
    int version = 0;
    Version stored = 0;
    bool tried = false, written = false;
    bool sent = true;  // it goes to `persistent`
    std::optional<RoutedFile> file = {};
    std::filesystem::path original = {};  // of the file
    std::optional<Error> failure = {};
  };
  /// From Restart_begin to Restart_end.
  struct Reading {
    std::string name;
    int version = 0;
    Version stored = 0;
    bool alone = false;               // by this rank, whatever the others have
    std::optional<Store> other = {};  // another rank's, read alone
    std::map<int, std::size_t> sizes = {};
    std::optional<RoutedFile> file = {};
  };
  /// A file that is stored, and to be written under its own name.
  struct Unnamed {
    RoutedFile file;
    std::filesystem::path original;
    std::string name;
    Version stored = 0;
  };
  struct Unfinished {
    std::string text;  // "version 3 of 'heat'"
    Future future;
    std::string level;  // at which it is durable
  };

  Result<Series*> find(const std::string& name);
  Result<void> begin_writing(const std::string& name, int version);
  /// The ranks, once all are here. Collective.
  Peers& met();
  /// Whether a version that is begun now goes to `persistent`; fails on all if it does not begin on one. Collective.
  Result<bool> goes(const Result<void>& begins);
  Result<void> write(const std::vector<Source>& sources);
  Result<void> hand_over(const Future& written);
  Result<void> write_regions(int mode, const std::set<int>& ids);
  Result<void> end_writing(bool success);
  Result<void> wait();
  void look();
  Result<void> write_named();
  /// Whether versions of an earlier edition are still to go.
  bool replaces() const;
  Result<void> begin_reading(const std::string& name, int version, int target_rank);
  /// Where a version is read: this rank's store, or another's.
  Store& store_of(Reading& reading) { return reading.other ? *reading.other : group_->store(); }
  Result<Store> open_another(int target_rank) const;
  Result<CheckpointInfo> found(Reading& reading, int target_rank);
  Result<void> restore(std::span<const Target> targets);
  Result<void> read_regions(int mode, const std::set<int>& ids);
  Result<std::string> route(const std::filesystem::path& original);
  std::filesystem::path routed_path(const std::string& name, int version) const;

  const Config config_;
  std::optional<Group> group_;  // none: closed
  Peers peers_;
  const bool over_mpi_;
  std::optional<Relay> relay_;  // the ranks of each node have one store, and a backend sends what they leave
  Protected regions_;
  std::map<int, observer_t> observers_;
  std::map<std::string, Series> names_;
  Ahead ahead_;
  std::set<std::string> unwaited_;  // names with checkpoints since the last wait, the same on all ranks
  std::deque<Unfinished> unfinished_;
  std::vector<Unnamed> unnamed_;
  std::optional<Error> failure_;  // of a checkpoint since the last wait
  std::chrono::steady_clock::time_point sent_ = std::chrono::steady_clock::now();  // the last to go to `persistent`
  std::optional<Writing> writing_;
  std::optional<Reading> reading_;
};

/// The client is not the process's any more.
void forget(const Client* client) noexcept;

}  // namespace ebb::veloc
