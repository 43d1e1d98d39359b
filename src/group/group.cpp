#include "ebbtide/group.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "group/rounds.hpp"

namespace ebb {

namespace group {

struct Members {
  Members(std::unique_ptr<Collective> collective, Store opened, std::string promised)
      : rounds(std::move(collective)), store(std::move(opened)), level(std::move(promised)) {
    add(store);
  }

  struct Written {
    Version version = 0;
    std::function<bool()> done;  // whether it is durable; throws if it never will be
  };
  struct Of {
    History history;
    std::deque<Written> open;
    bool older = false;  // versions that no resume() could go on from may be in the way
  };

  std::size_t add(History history) {
    of.push_back({std::move(history), {}});
    return rounds.agreement.add_history();
  }
  /// What became durable here, and what never will.
  void look_at_own();
  Result<void> act(const Agreement::Outcome& outcome);
  /// Takes part in what rounds there are, and waits for nobody.
  Result<void> progress();
  /// Returns when every member is here.
  Result<void> meet();
  Result<std::optional<Version>> find(std::optional<Version> at_most,
                                      const std::function<Result<std::optional<Version>>(Version)>& newest);
  Result<std::optional<Version>> latest(std::size_t number, std::optional<Version> at_most);
  Result<Future> write(std::size_t number, Version version, std::span<const Source> sources,
                       const CheckpointOptions& options);

  Rounds rounds;
  Store store;
  std::string level;
  std::deque<Of> of;
};

void Members::look_at_own() {
  for (std::size_t number = 0; number < of.size(); ++number) {
    auto& open = of[number].open;
    for (; !open.empty(); open.pop_front()) {
      const Version version = open.front().version;
      try {
        if (!open.front().done()) break;
        rounds.agreement.durable(number, version);
      } catch (const BadResult&) {
        rounds.agreement.failed(number, version);
      }
    }
  }
}

Result<void> Members::act(const Agreement::Outcome& outcome) {
  for (const auto& [number, version] : outcome.voided) {
    std::erase_if(of[number].open, [version = version](const Written& one) { return one.version == version; });
    if (auto dropped = of[number].history.drop(version); !dropped) return dropped;
  }
  for (const auto& [number, version] : outcome.agreed)
    if (auto told = of[number].history.agree(version); !told) return told;
  return {};
}

Result<void> Members::progress() {
  look_at_own();
  const auto ended = rounds.look();
  if (!ended) return ended.error();
  if (*ended)
    if (auto acted = act(**ended); !acted) return acted;
  return rounds.begin();
}

Result<void> Members::meet() {
  rounds.agreement.arrive();
  while (!rounds.agreement.met()) {
    look_at_own();
    if (auto begun = rounds.begin(); !begun) return begun;
    const auto ended = rounds.end();
    if (!ended) return ended.error();
    if (auto acted = act(*ended); !acted) return acted;
  }
  return {};
}

// Each member's newest below a bound, which is the least of those before it, until they are the same.
Result<std::optional<Version>> Members::find(std::optional<Version> at_most,
                                             const std::function<Result<std::optional<Version>>(Version)>& newest) {
  Version bound = at_most.value_or(std::numeric_limits<Version>::max());
  for (;;) {
    const auto mine = newest(bound);
    if (auto asked = rounds.all(mine ? Result<void>() : mine.error(), "looking for the newest version"); !asked)
      return asked.error();
    const Version own = mine->value_or(Agreement::kNone);
    const auto ends = rounds.least({own, -own});
    if (!ends) return ends.error();
    bound = (*ends)[0];
    if (bound == Agreement::kNone) return std::optional<Version>();
    if (bound == -(*ends)[1]) return std::optional(bound);
  }
}

Result<std::optional<Version>> Members::latest(std::size_t number, std::optional<Version> at_most) {
  return find(at_most, [&](Version bound) { return of[number].history.latest(bound); });
}

Result<Future> Members::write(std::size_t number, Version version, std::span<const Source> sources,
                              const CheckpointOptions& options) {
  constexpr Seconds kUsual(10);
  constexpr auto kLook = std::chrono::milliseconds(1);
  Of& mine = of[number];
  const auto begun = std::chrono::steady_clock::now();
  const Seconds limit = options.timeout > Seconds(0) ? options.timeout : kUsual;
  CheckpointOptions at_once = options;
  at_once.timeout = Seconds(0);
  bool older = mine.older;
  for (;;) {
    if (rounds.agreement.is_void(number, version)) {
      return Error{Errc::dropped, "version " + std::to_string(version) +
                                      " is void: another rank could not store its part, and says why"};
    }
    auto written = mine.history.checkpoint(version, sources, at_once);
    if (written) return written;
    if (written.error().code == Errc::version_exists && std::exchange(older, false)) {
      if (auto dropped = mine.history.drop(version); !dropped) return dropped.error();
      continue;
    }
    const bool over =
        std::chrono::steady_clock::now() - begun >= limit || (options.interrupted && options.interrupted());
    if (written.error().code != Errc::no_space || over || options.adopt) return written.error();
    std::this_thread::sleep_for(kLook);  // what others agree on makes room
    if (auto told = progress(); !told) return told.error();
  }
}

}  // namespace group

using group::Members;
using group::Rounds;

namespace {

Error not_ascending(Version version, Version last) {
  return {Errc::invalid_argument, "version " + std::to_string(version) + " is not above version " +
                                      std::to_string(last) +
                                      ", the last one: the versions of a group ascend; resume() goes back"};
}

std::string own_name(int rank) { return "rank-" + std::to_string(rank); }

/// The directory says how many ranks wrote it.
Result<void> check_count(const std::filesystem::path& directory, const Collective& of, bool write) {
  const std::filesystem::path file = directory / "ranks";
  int found = 0;
  if (std::ifstream in(file); in && in >> found && found != of.count()) {
    return Error{Errc::invalid_argument, directory.string() + " was written by a group of " + std::to_string(found) +
                                             " ranks, and this one has " + std::to_string(of.count()) +
                                             ": start as many, or give a directory of its own"};
  }
  if (!write || found == of.count()) return {};
  const auto own = file.string() + "." + std::to_string(of.rank());
  std::ofstream(own) << of.count() << '\n';
  std::error_code failed;
  std::filesystem::rename(own, file, failed);
  if (failed) return Error{Errc::io_error, file.string() + " cannot be written: " + failed.message()};
  return {};
}

Result<Store> open_own(const Collective& collective, Options& options) {
  auto all = with_environment(options);
  if (!all) return all.error();
  options = *all;
  options.agreed = true;
  if (!options.durability) options.durability = options.shared ? Durability::shared : Durability::storage;
  if (*options.durability == Durability::ephemeral)
    return Error{Errc::invalid_argument,
                 "durability=\"ephemeral\" is not valid for a group: give \"storage\", or leave it out"};
  if (!options.directory) return Error{Errc::invalid_argument, "directory is not given: each rank's store is in it"};
  const bool pool = options.node_pool.value_or(0) > 0;
  for (auto* const place : {&options.directory, &options.shared}) {
    if (!*place) continue;
    std::error_code failed;
    std::filesystem::create_directories(**place, failed);
    if (failed) return Error{Errc::io_error, (*place)->string() + " cannot be made: " + failed.message()};
    if (pool) continue;
    if (auto same = check_count(**place, collective, false); !same) return same.error();
    **place /= own_name(collective.rank());
  }
  auto store = Store::open(options);
  if (!store || pool) return store;
  for (const auto& place : {options.directory, options.shared})
    if (place)
      if (auto told = check_count(place->parent_path(), collective, true); !told) return told.error();
  return store;
}

}  // namespace

Result<std::optional<Version>> GroupHistory::latest(std::optional<Version> at_most) {
  if (auto met = members_->meet(); !met) return met.error();
  return members_->latest(number_, at_most);
}

Result<std::vector<Version>> GroupHistory::versions() {
  if (auto met = members_->meet(); !met) return met.error();
  const auto mine = members_->of[number_].history.versions();
  std::vector<Version> common;
  for (std::optional<Version> below;;) {
    const auto found = members_->find(below, [&](Version bound) -> Result<std::optional<Version>> {
      if (!mine) return mine.error();
      const auto above = std::upper_bound(mine->begin(), mine->end(), bound);
      return above == mine->begin() ? std::nullopt : std::optional(*std::prev(above));
    });
    if (!found) return found.error();
    if (!*found) break;
    common.push_back(**found);
    below = **found - 1;
  }
  std::reverse(common.begin(), common.end());
  return common;
}

Result<std::optional<Version>> GroupHistory::resume(std::optional<Version> at_most) {
  auto& mine = members_->of[number_];
  if (auto met = members_->meet(); !met) return met.error();
  const auto found = members_->latest(number_, at_most);
  if (!found) return found;
  const Version from = found->value_or(Agreement::kNone);
  const auto restart = [&]() -> Result<void> {
    mine.open.clear();
    mine.older = !*found;
    members_->rounds.agreement.restart(number_, from);
    const auto there = mine.history.versions();
    if (!there) return there.error();
    for (const Version version : *there)
      if (*found && version > from)
        if (auto dropped = mine.history.drop(version); !dropped) return dropped;
    return mine.history.agree(from);
  };
  if (auto all = members_->rounds.all(restart(), "going on from there"); !all) return all.error();
  return found;
}

Result<Future> GroupHistory::checkpoint(Version version, std::span<const Source> sources,
                                        const CheckpointOptions& options) {
  Agreement& agreement = members_->rounds.agreement;
  if (const Version last = agreement.last(number_); version <= last) return not_ascending(version, last);
  if (auto told = members_->progress(); !told) return told.error();
  auto written = members_->write(number_, version, sources, options);
  if (!written) {
    agreement.failed(number_, version);
  } else {
    agreement.written(number_, version);
    members_->of[number_].open.push_back(
        {version, [future = *written, level = members_->level] { return future.done(level); }});
  }
  if (auto told = members_->progress(); !told) return told.error();
  return written;
}
Result<Future> GroupHistory::checkpoint(Version version, std::initializer_list<Source> sources,
                                        const CheckpointOptions& options) {
  return checkpoint(version, std::span(sources.begin(), sources.size()), options);
}

Result<void> GroupHistory::wait(std::string_view level, std::optional<Seconds> timeout) {
  const auto own = members_->of[number_].history.wait(level, timeout);
  if (auto met = members_->meet(); !met) return met;
  return members_->rounds.all(own, "waiting for level=\"" + std::string(level) + "\"");
}

Result<void> GroupHistory::restore(Version version, std::span<const Target> targets, RestoreOptions options) {
  options.keep = true;
  return mine().restore(version, targets, options);
}
Result<void> GroupHistory::restore(Version version, std::initializer_list<Target> targets, RestoreOptions options) {
  return restore(version, std::span(targets.begin(), targets.size()), std::move(options));
}

History& GroupHistory::mine() { return members_->of[number_].history; }

Result<Group> Group::open(std::unique_ptr<Collective> collective, Options options) {
  if (!collective) return Error{Errc::invalid_argument, "the collective is null"};
  auto store = open_own(*collective, options);
  if (!store) {
    Rounds alone(std::move(collective));
    return alone.all(store.error(), "opening").error();
  }
  auto members =
      std::make_shared<Members>(std::move(collective), std::move(*store), std::string(name_of(*options.durability)));
  if (auto all = members->rounds.all({}, "opening"); !all) return all.error();
  return Group(std::move(members), 0);
}

int Group::rank() const { return members_->rounds.rank(); }
int Group::count() const { return members_->rounds.count(); }
Store& Group::store() { return members_->store; }

Result<GroupHistory> Group::history(std::string name, Order order) {
  if (auto met = members_->meet(); !met) return met.error();
  return GroupHistory(members_, members_->add(members_->store.history(std::move(name), order)));
}

Result<Snapshot> Group::snapshot(Version version, const SnapshotOptions& options) {
  Agreement& agreement = members_->rounds.agreement;
  if (const Version last = agreement.last(0); version <= last) return not_ascending(version, last);
  if (auto met = members_->meet(); !met) return met.error();
  auto taken = members_->store.snapshot(version, options);
  const auto all = members_->rounds.all(taken ? Result<void>() : taken.error(), "snapshot " + std::to_string(version));
  if (!all) {
    agreement.failed(0, version);
    return all.error();
  }
  agreement.written(0, version);
  members_->of[0].open.push_back({version, [cut = *taken, level = members_->level] { return cut.done(level); }});
  return taken;
}

Result<void> Group::close() {
  Result<void> own;
  for (auto& one : members_->of)
    if (auto waited = one.history.wait(members_->level); !waited && own) own = waited;
  if (auto met = members_->meet(); !met) return met;
  if (auto closed = members_->store.close(); !closed && own) own = closed;
  return members_->rounds.all(own, "closing");
}

}  // namespace ebb
