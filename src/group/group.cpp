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
    std::function<bool()> done;  // whether it is durable; throws while it is not known when that will be
  };
  struct Replaced {
    Version by = 0;
    std::vector<Version> older;
  };
  struct Of {
    History history;
    std::deque<Written> open;
    std::deque<Replaced> replaced;  // ascending
  };

  std::size_t add(History history) {
    of.push_back({std::move(history), {}, {}});
    return rounds.agreement.add_history();
  }
  /// Tells the agreement what has become durable here, and what never will.
  void look_at_own();
  void act(const Agreement::Outcome& outcome);
  /// Drops what a version that all have durable takes the place of.
  Result<void> drop_replaced(Of& one, Version agreed);
  /// Takes part in what rounds there are, and waits for nobody.
  void progress();
  /// Returns when every member is here, and none is broken off.
  Result<void> meet();
  Result<void> wait_own(History& history, std::string_view on, std::optional<Seconds> timeout);
  Result<std::optional<Version>> find(std::optional<Version> at_most,
                                      const std::function<Result<std::optional<Version>>(Version)>& newest);
  Result<std::optional<Version>> latest(std::size_t number, std::optional<Version> at_most);
  Result<Future> write(std::size_t number, Version version, std::span<const Source> sources,
                       const CheckpointOptions& options);
  Result<void> restart(std::size_t number, Version from);

  /// At which a version is durable.
  std::string level_of(bool to_shared) const {
    return on_request && !to_shared ? std::string(name_of(Durability::storage)) : level;
  }

  Rounds rounds;
  Store store;
  std::string level;
  bool on_request = false;  // only versions that are written `to_shared` go to the shared directory
  std::deque<Of> of;
  bool closed = false;
};

namespace {

/// A write that failed otherwise is tried again, for as long as it takes.
bool is_final(Errc code) {
  return code == Errc::dropped || code == Errc::lost || code == Errc::damaged || code == Errc::unknown_version;
}

}  // namespace

void Members::look_at_own() {
  for (std::size_t number = 0; number < of.size(); ++number) {
    auto& open = of[number].open;
    for (; !open.empty(); open.pop_front()) {
      const Version version = open.front().version;
      try {
        if (!open.front().done()) break;
        rounds.agreement.durable(number, version);
      } catch (const BadResult& failure) {
        if (!is_final(failure.error().code)) break;
        rounds.agreement.failed(number, version);
      }
    }
  }
}

void Members::act(const Agreement::Outcome& outcome) {
  for (const auto& [number, version] : outcome.voided) {
    std::erase_if(of[number].open, [version = version](const Written& one) { return one.version == version; });
    if (rounds.broken()) continue;
    if (auto dropped = of[number].history.drop(version); !dropped) rounds.break_off(dropped.error());
  }
  for (const auto& [number, version] : outcome.agreed) {
    if (rounds.broken()) continue;
    if (auto dropped = drop_replaced(of[number], version); !dropped) rounds.break_off(dropped.error());
    if (auto told = of[number].history.agree(version); !told) rounds.break_off(told.error());
  }
}

// Void versions are agreed on as well, and take no other's place.
Result<void> Members::drop_replaced(Of& one, Version agreed) {
  for (; !one.replaced.empty() && one.replaced.front().by <= agreed; one.replaced.pop_front()) {
    const auto there = one.history.versions();
    if (!there) return there.error();
    const auto first = std::ranges::lower_bound(*there, one.replaced.front().by);
    if (first == there->end() || *first > agreed) return {};
    for (const Version version : one.replaced.front().older) {
      const auto dropped = one.history.drop(version);
      if (!dropped && dropped.error().code != Errc::unknown_version) return dropped;  // unknown: it has gone before
    }
  }
  return {};
}

void Members::progress() {
  look_at_own();
  if (const auto ended = rounds.look(); ended && *ended) act(**ended);
  static_cast<void>(static_cast<bool>(rounds.begin()));  // an error breaks off
}

Result<void> Members::meet() {
  rounds.agreement.arrive();
  while (!rounds.agreement.met()) {
    look_at_own();
    if (auto begun = rounds.begin(); !begun) return begun;
    const auto ended = rounds.end();
    if (!ended) return ended.error();
    act(*ended);
  }
  return rounds.all(rounds.broken() ? Result<void>(*rounds.broken()) : Result<void>(), "taking part");
}

// The others may wait for this member meanwhile, to make room.
Result<void> Members::wait_own(History& history, std::string_view on, std::optional<Seconds> timeout) {
  constexpr Seconds kSlice(0.05);
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    const Seconds gone = std::chrono::steady_clock::now() - begun, left = timeout ? *timeout - gone : kSlice;
    auto waited = history.wait(on, std::clamp(left, Seconds(0), kSlice));
    if (waited || waited.error().code != Errc::timed_out || (timeout && left <= kSlice)) return waited;
    progress();
  }
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
  const auto begun = std::chrono::steady_clock::now();
  const Seconds limit = options.timeout > Seconds(0) ? options.timeout : kUsual;
  CheckpointOptions at_once = options;
  at_once.timeout = Seconds(0);
  for (;;) {
    if (rounds.broken()) return *rounds.broken();
    if (rounds.agreement.is_void(number, version)) {
      return Error{Errc::dropped, "version " + std::to_string(version) +
                                      " is void: another rank could not store its part, and says why"};
    }
    auto written = of[number].history.checkpoint(version, sources, at_once);
    if (written) return written;
    const bool over =
        std::chrono::steady_clock::now() - begun >= limit || (options.interrupted && options.interrupted());
    if (written.error().code != Errc::no_space || over || options.adopt) return written.error();
    std::this_thread::sleep_for(kLook);  // what others agree on makes room
    progress();
  }
}

// What is newer than the version that all have durable is dropped, and will not come back.
Result<void> Members::restart(std::size_t number, Version from) {
  History& history = of[number].history;
  of[number].open.clear();
  of[number].replaced.clear();
  const auto there = history.versions();
  if (!there) return there.error();
  for (const Version version : *there)
    if (version > from)
      if (auto dropped = history.drop(version); !dropped) return dropped;
  if (auto waited = history.wait_for_drops(); !waited) return waited;
  rounds.agreement.restart(number, from);
  return history.agree(from);
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

/// Members that are to keep the same versions, at the same level, are opened alike.
Result<void> check_alike(Rounds& rounds, const Options& options) {
  struct Common {
    const char* option;
    std::uint64_t value;
  };
  const Common all[] = {{"keep_last", options.keep_last.value_or(0)},
                        {"keep_every", options.keep_every.value_or(0)},
                        {"keep_last_shared", options.keep_last_shared.value_or(options.keep_last.value_or(0))},
                        {"durability", static_cast<std::uint64_t>(*options.durability)},
                        {"shared", options.shared.has_value()},
                        {"veloc_rank", options.veloc_rank.has_value()},
                        {"veloc_meta", options.veloc_meta.has_value()},
                        {"veloc_chksum", options.veloc_chksum.value_or(false)},
                        {"shared_every", options.shared_every.value_or(0)},
                        {"readonly", options.readonly.value_or(false)}};
  std::vector<std::int64_t> values;
  for (const Common& one : all) {
    const auto own =
        static_cast<std::int64_t>(std::min<std::uint64_t>(one.value, std::numeric_limits<std::int64_t>::max()));
    values.insert(values.end(), {own, -own});
  }
  const auto least = rounds.least(values);
  if (!least) return least.error();
  for (std::size_t i = 0; i < values.size(); i += 2) {
    if ((*least)[i] == -(*least)[i + 1]) continue;
    const std::string option = all[i / 2].option;
    const std::string here =
        option == "durability" ? std::string(name_of(*options.durability)) : std::to_string(all[i / 2].value);
    return Error{Errc::invalid_argument, option + " is \"" + here + "\" in rank " + std::to_string(rounds.rank()) +
                                             ", and not in all: give every rank of a group the same"};
  }
  return {};
}

Result<Store> open_own(const Collective& collective, Options& options) {
  auto all = with_environment(options);
  if (!all) return all.error();
  options = *all;
  options.agreed = true;
  if (options.veloc_rank) options.veloc_rank = static_cast<std::uint64_t>(collective.rank());
  if (!options.durability) options.durability = options.shared ? Durability::shared : Durability::storage;
  if (*options.durability == Durability::ephemeral)
    return Error{Errc::invalid_argument,
                 "durability=\"ephemeral\" is not valid for a group: give \"storage\", or leave it out"};
  if (const auto every = options.shared_every.value_or(0); every > 1 && every != kOnRequest)
    return Error{Errc::unsupported, "shared_every is not for a group: all of its versions go to the shared directory"};
  if (!options.directory) return Error{Errc::invalid_argument, "directory is not given: each rank's store is in it"};
  const bool pool = options.node_pool.value_or(0) > 0;
  for (auto* const place : {&options.directory, &options.shared}) {
    if (!*place) continue;
    std::error_code failed;
    std::filesystem::create_directories(**place, failed);
    if (failed) return Error{Errc::io_error, (*place)->string() + " cannot be made: " + failed.message()};
    if (pool || (options.veloc_rank && place == &options.shared)) continue;  // ranks share it
    if (auto same = check_count(**place, collective, false); !same) return same.error();
    **place /= own_name(collective.rank());
  }
  auto store = Store::open(options);
  if (!store || pool) return store;
  for (const auto& place : {options.directory, options.veloc_rank ? std::nullopt : options.shared})
    if (place)
      if (auto told = check_count(place->parent_path(), collective, true); !told) return told.error();
  return store;
}

}  // namespace

Result<std::optional<Version>> GroupHistory::latest(std::optional<Version> at_most) {
  if (auto met = members_->meet(); !met) return met.error();
  return members_->latest(number_, at_most);
}

Result<std::optional<Version>> GroupHistory::latest_by(
    const std::function<Result<std::optional<Version>>(Version)>& newest) {
  if (auto met = members_->meet(); !met) return met.error();
  return members_->find({}, newest);
}

void GroupHistory::replace(Version version, std::vector<Version> older) {
  members_->of[number_].replaced.push_back({version, std::move(older)});
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
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  Rounds& rounds = members_->rounds;
  if (auto met = members_->meet(); !met) return met.error();
  const auto found = members_->latest(number_, at_most);
  if (!found) return found;
  const auto mine = this->mine().versions();
  const auto who = rounds.least({mine && mine->empty() ? kNobody : rounds.rank()});
  if (!who) return who.error();
  if (!*found && (*who)[0] != kNobody) {
    return Error{Errc::lost, "no version is intact on all ranks, and rank " + std::to_string((*who)[0]) +
                                 " has some: give back the directory that is missing, or drop() them to begin anew"};
  }
  // On every rank before anything is dropped on one.
  const auto durable = *found ? this->mine().wait(**found, members_->level) : Result<void>();
  if (auto all = rounds.all(durable, "making version " + std::to_string(found->value_or(0)) + " durable"); !all)
    return all.error();
  const auto own = members_->restart(number_, found->value_or(Agreement::kNone));
  if (auto all = rounds.all(own, "going on from there"); !all) return all.error();
  return found;
}

Result<void> GroupHistory::drop() {
  if (auto met = members_->meet(); !met) return met.error();
  return members_->rounds.all(members_->restart(number_, Agreement::kNone), "dropping all versions");
}

Result<Future> GroupHistory::checkpoint(Version version, std::span<const Source> sources,
                                        const CheckpointOptions& options) {
  Agreement& agreement = members_->rounds.agreement;
  if (const Version last = agreement.last(number_); version <= last) return not_ascending(version, last);
  members_->progress();
  auto written = members_->write(number_, version, sources, options);
  if (!written) {
    agreement.failed(number_, version);
  } else {
    agreement.written(number_, version);
  }
  members_->progress();
  // The version counts as durable from the next call on: until then the member may withdraw it.
  if (written) {
    const std::string level = members_->level_of(options.to_shared);
    members_->of[number_].open.push_back({version, [future = *written, level] { return future.done(level); }});
  }
  return written;
}
Result<Future> GroupHistory::checkpoint(Version version, std::initializer_list<Source> sources,
                                        const CheckpointOptions& options) {
  return checkpoint(version, std::span(sources.begin(), sources.size()), options);
}

Result<void> GroupHistory::wait(std::string_view level, std::optional<Seconds> timeout) {
  const auto own = members_->wait_own(mine(), level, timeout);
  if (auto met = members_->meet(); !met) return met;
  return members_->rounds.all(own, "waiting for level=\"" + std::string(level) + "\"");
}

Result<void> GroupHistory::withdraw(Version version) {
  Agreement& agreement = members_->rounds.agreement;
  if (version > agreement.last(number_)) {
    agreement.failed(number_, version);
    return {};
  }
  auto& open = members_->of[number_].open;
  if (open.empty() || open.back().version != version) {
    return Error{Errc::invalid_argument, "version " + std::to_string(version) +
                                             " cannot be withdrawn: only the last one that was written can, at once"};
  }
  open.pop_back();
  agreement.failed(number_, version);
  if (auto dropped = mine().drop(version); !dropped) return dropped;
  return mine().wait_for_drops();
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
  Durability level = options.shared ? Durability::shared : *options.durability;
  if (level == Durability::shared && options.readonly.value_or(false))
    level = Durability::storage;  // a store that only reads refuses to wait for what it does not send
  auto members = std::make_shared<Members>(std::move(collective), std::move(*store), std::string(name_of(level)));
  members->on_request = options.shared_every == kOnRequest;
  if (auto all = members->rounds.all({}, "opening"); !all) return all.error();
  if (auto alike = check_alike(members->rounds, options); !alike) return alike.error();
  return Group(std::move(members), 0);
}

int Group::rank() const { return members_->rounds.rank(); }
int Group::count() const { return members_->rounds.count(); }
Store& Group::store() { return members_->store; }

Result<GroupHistory> Group::history(std::string name, Order order) {
  if (auto met = members_->meet(); !met) return met.error();
  const auto& of = members_->of;
  const auto same = std::ranges::find(of, name, [](const Members::Of& one) { return one.history.name(); });
  if (same != of.end()) return GroupHistory(members_, static_cast<std::size_t>(same - of.begin()));
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
  members_->of[0].open.push_back(
      {version, [cut = *taken, level = members_->level_of(false)] { return cut.done(level); }});
  return taken;
}

Result<void> Group::close(const std::optional<Durability>& level) {
  if (members_->closed) return {};
  Result<void> own;
  for (auto& one : members_->of)
    if (auto waited = members_->wait_own(one.history, level ? name_of(*level) : members_->level, {}); !waited && own)
      own = waited;
  if (auto met = members_->meet(); !met) return met;
  members_->closed = true;
  if (auto closed = members_->store.close({}, level); !closed && own) own = closed;
  return members_->rounds.all(own, "closing");
}

}  // namespace ebb
