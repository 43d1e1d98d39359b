#pragma once
// Processes that checkpoint together and restart together: the ranks of an MPI job, each with a store of its own.
//
//   const ebb::Options options{.directory = "/nvme/run-7", .keep_last = 2};
//   auto group = ebb::Group::open(ebb::collective(MPI_COMM_WORLD), options).value();
//   const auto newest = group.resume().value();                        // the same on every rank, or none
//   if (newest) group.restore(*newest, {{0, field.data(), bytes}}).value();
//   for (std::int64_t step = newest.value_or(-1) + 1; step < n; ++step) {
//     advance(field);                                                  // exchanges data with other ranks
//     group.checkpoint(step, {{0, field.data(), bytes}}).value();
//   }
//   group.close().value();
//
// ebb::collective is in ebbtide/mpi.hpp.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/store.hpp"

namespace ebb {

namespace group {
struct Members;
}  // namespace group

/// How the members of a group talk: an MPI communicator (ebbtide/mpi.hpp), or whatever else can find a minimum. It is
/// called by the thread that calls the group, and by no other.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;   ///< of this member, from 0
  virtual int count() const = 0;  ///< of members
  /// Begins to replace each value by the least that a member gave in its place; all members give equally many. The
  /// memory stays until test() has said that it is done, and nothing else begins before that.
  virtual Result<void> begin_least(std::span<std::int64_t> values) = 0;
  /// Whether that is done; with `wait`, once it is.
  virtual Result<bool> test(bool wait) = 0;
};

class Group;

/// A history of every member: each member's own part of the same versions.
///
/// *Collective* methods are called by all members, in the same order, and wait for each other. An error on one member
/// is an error on all; those that did not fail themselves say which one did. Thread safety: none; one thread at a time
/// calls a group and its histories.
class GroupHistory {
 public:
  /// The newest version, not above `at_most`, that is complete and intact in every member; none: nothing. Collective.
  Result<std::optional<Version>> latest(std::optional<Version> at_most = {});
  /// The same, where each member says by `newest` which of its own is the newest that is not above a bound. Collective.
  Result<std::optional<Version>> latest_by(const std::function<Result<std::optional<Version>>(Version)>& newest);
  /// The versions that every member has, ascending. Their bytes are not read. Collective.
  Result<std::vector<Version>> versions();
  /// latest(), and the job goes on from there: it is durable in every member then, and what is newer is dropped for
  /// good, to be written again. Nothing: no member has a version. To be called before the first checkpoint, and to go
  /// back. Error lost: members have versions, and none that all have (a directory is missing). Collective.
  Result<std::optional<Version>> resume(std::optional<Version> at_most = {});

  /// History::checkpoint of this member's part. It waits for no other member, unless the disk is full of what the
  /// others have not agreed on. Versions ascend, and every member writes the same ones. If one member cannot store its
  /// part, the version is void: it is dropped in all, and `dropped` in those that come to it later. Errors: as there,
  /// and invalid_argument (the version is not above the last one).
  ///
  /// `Options::keep_last` counts versions that are durable in every member, so the newest of those is always kept. With
  /// `shared_every = kOnRequest` one that does not go `to_shared`, which is the same in all members, counts once it is
  /// on the local disk of each.
  Result<Future> checkpoint(Version version, std::span<const Source> sources, const CheckpointOptions& options = {});
  Result<Future> checkpoint(Version version, std::initializer_list<Source> sources,
                            const CheckpointOptions& options = {});
  /// The version that this member wrote last, or the one that it would write next, is void, as if it could not have
  /// been stored: it is dropped in all, and no kill of this process brings it back. Errors: invalid_argument (it is
  /// another one, or counts as durable already), and those of History::drop.
  Result<void> withdraw(Version version);
  /// Once `version`, which is written next, or a later one is durable in every member, `older` ones are dropped in all,
  /// before `keep_last` counts. Each member names its own.
  void replace(Version version, std::vector<Version> older);
  /// Forgets every version in every member. Collective.
  Result<void> drop();
  /// Waits until what every member has written is as durable as `level`; for its own, each waits no longer than
  /// `timeout`. Errors: as History::wait. Collective.
  Result<void> wait(std::string_view level, std::optional<Seconds> timeout = {});

  /// History::restore of this member's part. The version is kept.
  Result<void> restore(Version version, std::span<const Target> targets, RestoreOptions options = {});
  Result<void> restore(Version version, std::initializer_list<Target> targets, RestoreOptions options = {});
  /// This member's part, for all else: hints, borrow, info. Checkpoints that do not go through the group are not agreed
  /// on.
  History& mine();

 protected:
  friend class Group;
  GroupHistory(std::shared_ptr<group::Members> members, std::size_t number)
      : members_(std::move(members)), number_(number) {}
  std::shared_ptr<group::Members> members_;
  std::size_t number_ = 0;
};

/// An open group; it is itself the group's history named "".
class Group : public GroupHistory {
 public:
  /// Opens this member's store: in `options.directory`/rank-N, and rank-N of `options.shared` (with `veloc_rank`, which
  /// is set to each member's rank, VELOC's files of all are in one directory); in a node's pool
  /// (`node_pool`) ranks share the directory of their node. `agreed` is set; without a durability it is "storage", or
  /// "shared". Errors: as Store::open, and invalid_argument (a group of another size wrote the
  /// directory; retention, durability, `shared` or `readonly` are not the same in all members). Collective.
  static Result<Group> open(std::unique_ptr<Collective> collective, Options options);

  int rank() const;
  int count() const;
  /// This member's. To be closed by the group's close().
  Store& store();
  /// Collective.
  Result<GroupHistory> history(std::string name, Order order = Order::none);
  /// A snapshot of what this member has protected, at the same point of the program in all: one version, or none.
  /// Errors: as Store::snapshot; the version is then dropped in all. Collective.
  Result<Snapshot> snapshot(Version version, const SnapshotOptions& options = {});
  /// Waits until what every member has written is as durable as the store promises, and closes the stores. Collective.
  /// A group that is destroyed without it closes this member's store alone.
  /// `level`: as of Store::close(); the same on every member.
  Result<void> close(const std::optional<Durability>& level = {});

 private:
  using GroupHistory::GroupHistory;
};

}  // namespace ebb
