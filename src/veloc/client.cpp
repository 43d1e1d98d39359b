#include "veloc/client.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <limits>
#include <span>
#include <sstream>
#include <utility>

#include "veloc/say.hpp"

::veloc::client_t::~client_t() = default;

namespace ebb::veloc {

namespace {

constexpr std::size_t kLongestName = 127;         // of VELOC's commands
constexpr std::uint64_t kReaderCache = 64 << 20;  // where each version is read once
constexpr Seconds kRoom(60);                      // that a checkpoint waits for what other ranks are to agree on

Error no_phase(const std::string& begin) { return {Errc::invalid_argument, "call " + begin + " first"}; }

std::string text_of(const std::string& name, int version) {
  return "version " + std::to_string(version) + " of '" + name + "'";
}

Result<void> check(const std::string& name, int version) {
  const auto valid = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  if (name.empty() || name.size() > kLongestName || !std::ranges::all_of(name, valid)) {
    return Error{Errc::invalid_argument, "the name '" + name.substr(0, 2 * kLongestName) +
                                             "' is not valid: give 1 to 127 letters, digits, '_' and '.'"};
  }
  if (version < 0) {
    return Error{Errc::invalid_argument,
                 "version " + std::to_string(version) + " is not valid: give a number from 0 on"};
  }
  return {};
}

/// Whether it has ended, in whichever way.
bool has_ended(const Future& future, const std::string& level) {
  try {
    return future.done(level);
  } catch (const BadResult&) {
    return true;
  }
}

}  // namespace

Client::~Client() {
  close(false);
  forget(this);
}

bool Client::close(bool drain) {
  if (!group_) return true;
  return guarded("Finalize", [&]() -> Result<void> {
    writing_.reset();
    reading_.reset();
    int over = 0;
    if (over_mpi_) MPI_Finalized(&over);
    if (over) {
      group_.reset();
      return Error{Errc::invalid_argument,
                   "MPI_Finalize came first: what this rank has not sent is sent by the next job"};
    }
    // A backend replaces nothing: what is written again has VELOC's name afterwards if the ranks wait for that.
    enum : std::int64_t { wait_first, sent_here, sent_later };
    const std::int64_t mine = drain || replaces()               ? wait_first
                              : relay_ && relay_->has_backend() ? sent_later
                                                                : sent_here;
    const auto way = met().least(mine);
    const auto waited = way && *way != wait_first ? write_named() : wait();
    const auto closed = group_->close(way && *way == sent_later ? std::optional(Durability::node) : std::nullopt);
    names_.clear();
    unfinished_.clear();
    group_.reset();
    relay_.reset();
    return waited ? closed : waited;
  });
}

// --- memory

bool Client::mem_protect(int id, void* ptr, std::size_t count, std::size_t base_size, const std::string& name) {
  return guarded("Mem_protect", [&]() -> Result<void> {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, base_size, &bytes)) {
      return Error{Errc::invalid_argument, "region " + std::to_string(id) + " of " + std::to_string(count) + " times " +
                                               std::to_string(base_size) + " bytes is larger than memory"};
    }
    return regions_.add(id, {.data = ptr, .bytes = bytes}, name);
  });
}

bool Client::mem_protect(int id, const serializer_t& s, const deserializer_t& d, const std::string& name) {
  return guarded("Mem_protect", [&]() -> Result<void> {
    if (!s) return Error{Errc::invalid_argument, "region " + std::to_string(id) + " has no serializer"};
    return regions_.add(id, {.write = s, .read = d}, name);
  });
}

bool Client::protect_flagged(int id, void* ptr, std::size_t count, std::size_t base_size, unsigned flags,
                             void (*release)(void*)) {
  if (flags > READ_ONLY) {
    say("Mem_protect", "flags = " + std::to_string(flags) + " is not valid: give DEFAULT (0) or READ_ONLY (1)");
    return false;
  }
  if (!mem_protect(id, ptr, count, base_size, default_mem_group)) return false;
  regions_.of(default_mem_group).at(id).release = release;
  return true;
}

bool Client::mem_unprotect(int id, const std::string& name) {
  return guarded("Mem_unprotect", [&] { return regions_.remove(id, name); });
}

void Client::mem_clear(const std::string& name) { regions_.clear(name); }

bool Client::register_observer(int type, const observer_t& obs) {
  return guarded("register_observer", [&]() -> Result<void> {
    if (type != VELOC_OBSERVE_CKPT_END || !obs) {
      return Error{Errc::invalid_argument,
                   "type " + std::to_string(type) + " is not valid: give VELOC_OBSERVE_CKPT_END (0) and a function"};
    }
    observers_.insert_or_assign(type, obs);
    return {};
  });
}

// --- checkpoints

Result<Series*> Client::find(const std::string& name) {
  if (const auto found = names_.find(name); found != names_.end()) return &found->second;
  auto history = group_->history(name);
  if (!history) return history.error();
  return &names_.emplace(name, Series(*history)).first->second;
}

// Forgets what has ended, in the order of writing, and keeps the first failure.
void Client::look() {
  for (; !unfinished_.empty(); unfinished_.pop_front()) {
    try {
      if (!unfinished_.front().future.done(unfinished_.front().level)) return;
    } catch (const BadResult& failed) {
      if (!failure_) failure_ = failed.error();
    }
  }
}

bool Client::checkpoint(const std::string& name, int version) {
  std::optional<Error> earlier;  // of this rank alone: the others begin the next one, so this rank does too
  if (!config_.caches || config_.sync) {
    if (!checkpoint_wait()) return false;
  } else {
    look();
    earlier = std::exchange(failure_, {});
  }
  if (!checkpoint_begin(name, version)) return false;
  const bool written = checkpoint_mem(VELOC_CKPT_ALL, {});
  const bool ended = checkpoint_end(written) && written;  // the other ranks end it too
  if (earlier) say("Checkpoint", "an earlier checkpoint failed: " + earlier->message);
  return ended && !earlier;
}

bool Client::checkpoint_begin(const std::string& name, int version) {
  return guarded("Checkpoint_begin", [&] { return begin_writing(name, version); });
}

// A rank that waits for room needs the others in the group's rounds, so none blocks in MPI before all are here. In a
// group that is broken off none waits, and its next call says why.
Peers& Client::met() {
  static_cast<void>(static_cast<bool>(group_->history(std::string())));
  return peers_;
}

// By rank 0's clock: as VELOC counts, from Init on, whatever the names.
Result<bool> Client::goes(const Result<void>& begins) {
  if (config_.interval <= Seconds(0)) return begins ? Result(true) : begins.error();
  if (auto all = met().all(begins, "the call"); !all) return all.error();
  const auto now = std::chrono::steady_clock::now();
  const auto due = peers_.first(now - sent_ >= config_.interval);
  if (!due) return due.error();
  if (*due != 0) sent_ = now;
  return *due != 0;
}

Result<void> Client::begin_writing(const std::string& name, int version) {
  auto begins = check(name, version);
  if (writing_) begins = Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) + " has not ended"};
  const auto sent = goes(begins);  // first of all: a rank that fails later leaves none in there
  if (!sent) return sent.error();
  const auto found = find(name);
  if (!found) return found.error();
  const auto next = (*found)->begin(version, *sent, peers_);
  if (!next) return next.error();
  if (next->replaces_up_to && peers_.leads()) {
    say("Checkpoint_begin", text_of(name, version) + " is written, so what an earlier job left of it and up to " +
                                text_of(name, *next->replaces_up_to) + " is dropped once every rank has it");
  }
  if (next->newer)
    if (auto hinted = ahead_.begin(group_->store(), name, version, edition_of(next->stored)); !hinted) return hinted;
  unwaited_.insert(name);
  writing_.emplace(Writing{.name = name, .version = version, .stored = next->stored, .sent = *sent});
  return {};
}

bool Client::checkpoint_mem(int mode, const std::set<int>& ids) {
  const bool written = guarded("Checkpoint_mem", [&]() -> Result<void> {
    return writing_ ? write_regions(mode, ids) : no_phase("Checkpoint_begin");
  });
  if (!written && writing_ && !writing_->failure) {
    writing_->failure =
        Error{Errc::invalid_argument, "Checkpoint_mem failed for " + text_of(writing_->name, writing_->version)};
  }
  return written;
}

Result<void> Client::write_regions(int mode, const std::set<int>& ids) {
  if (writing_->written || writing_->file) {
    return Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) +
                                             (writing_->file ? " is written as a file" : " has its regions already")};
  }
  Regions& regions = regions_.of(writing_->name);
  const Selection chosen{mode, ids};
  if (auto valid = chosen.check(regions, "protected"); !valid) return valid;
  std::vector<Source> sources;
  sources.reserve(regions.size());
  std::deque<std::string> serialized;
  std::vector<std::pair<void (*)(void*), void*>> releases;  // which may protect and unprotect regions
  for (const auto& [id, region] : regions) {
    if (!chosen.has(id)) continue;
    if (region.release) releases.emplace_back(region.release, region.data);
    if (!region.write) {
      sources.push_back({static_cast<std::uint32_t>(id), region.data, region.bytes});
      continue;
    }
    std::ostringstream out(std::ios::binary);
    region.write(out);
    if (!out) return Error{Errc::invalid_argument, "region " + std::to_string(id) + " cannot be serialized"};
    const std::string& text = serialized.emplace_back(std::move(out).str());
    sources.push_back({static_cast<std::uint32_t>(id), text.data(), text.size()});
  }
  if (sources.empty()) return Error{Errc::invalid_argument, "no region is protected and selected"};
  if (auto written = write(sources); !written) return written;
  for (const auto& [release, data] : releases) release(data);
  return {};
}

Result<void> Client::write(const std::vector<Source>& sources) {
  GroupHistory& history = names_.at(writing_->name).history();
  if (relay_ && writing_->sent) {  // the backend may have another interval
    if (auto asked = relay_->ask(peers_.rank(), {writing_->name, writing_->stored}); !asked) return asked;
  }
  writing_->tried = true;
  auto written = history.checkpoint(writing_->stored, sources, {.timeout = kRoom, .to_shared = writing_->sent});
  if (!written) return written.error();
  writing_->written = true;
  ahead_.written(writing_->name, writing_->stored);
  look();
  unfinished_.push_back(
      {text_of(writing_->name, writing_->version), *written, writing_->sent ? config_.level : "storage"});
  return relay_ ? hand_over(*written) : Result<void>();
}

// A kill of all ranks loses nothing of it from here on. From a GPU it comes later, and on a full disk once there is
// room.
Result<void> Client::hand_over(const Future& written) {
  if (group_->store().gpu()) return {};
  const auto there = written.wait("node");
  return there || there.error().code == Errc::no_space ? Result<void>() : there;
}

bool Client::checkpoint_end(bool success) {
  return guarded("Checkpoint_end", [&]() -> Result<void> {
    if (!writing_) return no_phase("Checkpoint_begin");
    auto ended = end_writing(success);
    if (!ended && !failure_) failure_ = ended.error();
    const std::string name = writing_->name;
    const int version = writing_->version;
    writing_.reset();
    if (config_.sync) ended = wait();
    if (const auto found = observers_.find(VELOC_OBSERVE_CKPT_END); found != observers_.end()) {
      const observer_t observer = found->second;  // which may register another
      observer(name, version);
    }
    return ended;
  });
}

Result<void> Client::end_writing(bool success) {
  Writing& one = *writing_;
  if (success && one.file) {
    if (auto mapped = one.file->map(); !mapped) {
      one.failure = mapped.error();
    } else if (auto written = write({{kFileRegion, one.file->data(), one.file->bytes()}}); !written) {
      one.failure = written.error();
    }
  }
  if (success && !one.failure && !one.written)
    one.failure = Error{Errc::invalid_argument, text_of(one.name, one.version) + " has no regions and no file"};
  if (success && !one.failure) {
    if (one.file && !config_.keeps_in_scratch)
      unnamed_.push_back({std::move(*one.file), one.original, one.name, one.stored});
    return {};
  }
  // Void: what this rank does not have, no rank keeps.
  if (one.written || !one.tried) {
    ahead_.given_up(one.name);
    if (auto dropped = names_.at(one.name).history().withdraw(one.stored); !dropped) return dropped;
  }
  if (!one.failure) {
    failure_ = Error{Errc::dropped, text_of(one.name, one.version) + " is void: Checkpoint_end was given 0"};
    return {};
  }
  return *one.failure;
}

bool Client::checkpoint_wait() {
  return guarded("Checkpoint_wait", [&]() -> Result<void> {
    if (writing_) return Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) + " has not ended"};
    return wait();
  });
}

// What the program has written as files, under their own names too. An older edition may be a link to a file of that
// name, so it goes first; what is void gets none.
Result<void> Client::write_named() {
  Result<void> done;
  std::vector<Unnamed> later;
  for (Unnamed& one : std::exchange(unnamed_, {})) {
    const Series& series = names_.at(one.name);
    const auto replaces = series.replaces(one.stored);
    if (!replaces && done) done = replaces.error();
    if (replaces && *replaces && group_->store().history(one.name).info(one.stored)) later.push_back(std::move(one));
    if (!replaces || *replaces) continue;
    const auto part = one.original.string() + "." + std::to_string(peers_.rank()) + ".part";
    if (auto written = one.file.write_to(one.original, part); !written && done) done = written;
  }
  unnamed_ = std::move(later);
  return done;
}

bool Client::replaces() const {
  return std::ranges::any_of(names_, [](const auto& one) {
    const auto replaces = one.second.replaces();
    return !replaces || *replaces;
  });
}

Result<void> Client::wait() {
  for (const std::string& name : std::exchange(unwaited_, {})) {
    const auto waited = names_.at(name).history().wait(config_.level);
    if (!waited && !failure_) failure_ = waited.error();
  }
  if (auto named = write_named(); !named && !failure_) failure_ = named.error();
  look();
  if (!unfinished_.empty() && !failure_) failure_ = Error{Errc::lost, unfinished_.front().text + " is not durable"};
  unfinished_.clear();
  const auto failure = std::exchange(failure_, {});
  return peers_.all(failure ? Result<void>(*failure) : Result<void>(), "a checkpoint");
}

bool Client::checkpoint_finished() {
  if (writing_) {
    say("Checkpoint_finished", text_of(writing_->name, writing_->version) + " has not ended");
    return false;
  }
  return std::ranges::all_of(unfinished_, [](const Unfinished& one) { return has_ended(one.future, one.level); });
}

bool Client::cleanup(const std::string& name) {
  return guarded("Cleanup", [&]() -> Result<void> {
    if (auto valid = check(name, 0); !valid) return valid;
    if (writing_) return Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) + " has not ended"};
    if (!config_.keeps_in_scratch) return {};
    const auto found = find(name);
    if (!found) return found.error();
    ahead_.dropped(name);
    return (*found)->drop();
  });
}

// --- restarts

int Client::restart_test(const std::string& name, int version, int target_rank) {
  int newest = VELOC_FAILURE;
  guarded("Restart_test", [&]() -> Result<void> {
    if (auto valid = check(name, version); !valid) return valid;
    if (writing_) return Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) + " has not ended"};
    const auto bound = version > 0 ? version : std::numeric_limits<int>::max();
    std::optional<Store> other;
    if (target_rank >= 0 && target_rank != peers_.rank()) {
      auto store = open_another(target_rank);
      if (!store) return store.error();
      other.emplace(std::move(*store));
    }
    const auto counts = [bound](Version stored) { return number_of(stored) <= bound; };
    const auto there = [&]() -> Result<std::optional<Version>> {
      History alone = (other ? *other : group_->store()).history(name);
      if (target_rank >= 0) return veloc::newest(alone, counts);
      const auto series = find(name);
      return series ? (*series)->find(counts, {}) : series.error();
    }();
    if (!there) return there.error();
    if (*there) newest = number_of(**there);
    return {};
  });
  return newest;
}

bool Client::restart(const std::string& name, int version, int target_rank) {
  return restart_begin(name, version, target_rank) && recover_mem(VELOC_RECOVER_ALL, {}) && restart_end(true);
}

bool Client::restart_begin(const std::string& name, int version, int target_rank) {
  return guarded("Restart_begin", [&] { return begin_reading(name, version, target_rank); });
}

Result<void> Client::begin_reading(const std::string& name, int version, int target_rank) {
  reading_.reset();
  auto begins = check(name, version);
  if (writing_) begins = Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) + " has not ended"};
  if (auto all = met().all(begins, "the call"); !all) return all;
  Reading reading{name, version};
  const auto info = found(reading, target_rank);
  const auto mine = info ? Result<void>() : info.error();
  if (auto all = peers_.all(mine, text_of(name, version)); !all) return all;
  for (const RegionInfo& region : info->regions) reading.sizes[static_cast<int>(region.id)] = region.bytes;
  reading_.emplace(std::move(reading));
  return {};
}

// What an earlier job left is read and checked here, so that all ranks know of damage.
Result<CheckpointInfo> Client::found(Reading& reading, int target_rank) {
  const int version = reading.version;
  reading.alone = target_rank >= 0;
  if (reading.alone && target_rank != peers_.rank()) {
    auto store = open_another(target_rank);
    if (!store) return store.error();
    reading.other.emplace(std::move(*store));
  }
  const auto counts = [version](Version stored) { return number_of(stored) == version; };
  const auto stored = [&]() -> Result<std::optional<Version>> {
    History mine = store_of(reading).history(reading.name);
    if (reading.alone) return newest(mine, counts);
    const auto series = find(reading.name);
    if (!series) return series.error();
    const auto own = ahead_.stored(group_->store(), reading.name, version);
    return own ? (*series)->find(counts, *own) : own.error();
  }();
  if (!stored) return stored.error();
  if (!*stored) {
    return Error{Errc::unknown_version,
                 text_of(reading.name, version) + " is not complete" + (reading.alone ? "" : " on every rank")};
  }
  reading.stored = **stored;
  ahead_.read(reading.name, version);
  return store_of(reading).history(reading.name).info(reading.stored);
}

// As the other rank left it; that one may be running.
Result<Store> Client::open_another(int target_rank) const {
  Options options;
  if (relay_) {  // the node's store is being written
    options.directory = config_.options.shared;
  } else {
    options.directory = *config_.options.directory / ("rank-" + std::to_string(target_rank));
    options.shared = config_.options.shared;
  }
  options.veloc_meta = config_.options.veloc_meta;
  options.veloc_chksum = config_.options.veloc_chksum;
  if (config_.options.shared) options.veloc_rank = static_cast<std::uint64_t>(target_rank);
  options.readonly = true;
  options.device_cache = 0;  // each version is read once
  options.host_cache = kReaderCache;
  return Store::open(options);
}

Result<void> Client::restore(std::span<const Target> targets) {
  return store_of(*reading_).history(reading_->name).restore(reading_->stored, targets, {.keep = true, .some = true});
}

std::size_t Client::recover_size(int id) {
  std::size_t size = kNoSize;
  guarded("Recover_size", [&]() -> Result<void> {
    if (!reading_) return no_phase("Restart_begin");
    if (const auto found = reading_->sizes.find(id); found != reading_->sizes.end()) size = found->second;
    return {};
  });
  return size;
}

bool Client::recover_mem(int mode, const std::set<int>& ids) {
  return guarded("Recover_mem",
                 [&]() -> Result<void> { return reading_ ? read_regions(mode, ids) : no_phase("Restart_begin"); });
}

Result<void> Client::read_regions(int mode, const std::set<int>& ids) {
  const std::string text = text_of(reading_->name, reading_->version);
  const Selection chosen{mode, ids};
  if (auto valid = chosen.check(reading_->sizes, "in " + text); !valid) return valid;
  const Regions& regions = regions_.of(reading_->name);
  std::vector<Target> targets;
  std::vector<std::unique_ptr<std::byte[]>> buffers;  // of what is not memory of the program
  std::vector<std::pair<int, Target>> serialized;
  for (const auto& [id, bytes] : reading_->sizes) {
    if (!chosen.has(id)) continue;
    const std::string which = "region " + std::to_string(id) + " of " + text;
    const auto found = regions.find(id);
    if (found == regions.end()) return Error{Errc::size_mismatch, which + " is not protected"};
    const bool direct = !found->second.read;
    if (direct && found->second.bytes < bytes) {
      return Error{Errc::size_mismatch, which + " has " + std::to_string(bytes) + " bytes, and " +
                                            std::to_string(found->second.bytes) + " are protected"};
    }
    Target target{static_cast<std::uint32_t>(id), direct ? found->second.data : nullptr, bytes};
    if (!direct) target.data = buffers.emplace_back(std::make_unique_for_overwrite<std::byte[]>(bytes)).get();
    if (!direct) serialized.emplace_back(id, target);
    targets.push_back(target);
  }
  if (targets.empty()) return {};
  if (auto read = restore(targets); !read) return read;
  for (const auto& [id, target] : serialized) {
    std::istringstream in(std::string(static_cast<const char*>(target.data), target.bytes), std::ios::binary);
    if (!regions.at(id).read(in)) {
      return Error{Errc::damaged, "region " + std::to_string(id) + " of " + text + " cannot be deserialized"};
    }
  }
  return {};
}

bool Client::restart_end(bool) {
  return guarded("Restart_end", [&]() -> Result<void> {
    if (!reading_) return no_phase("Restart_begin");
    reading_.reset();
    return {};
  });
}

// --- files

std::filesystem::path Client::routed_path(const std::string& name, int version) const {
  return config_.scratch / ".ebbtide-routed" /
         (name + "-" + std::to_string(peers_.rank()) + "-" + std::to_string(version) + ".dat");
}

std::string Client::route_file(const std::string& original) {
  std::string path;
  guarded("Route_file", [&]() -> Result<void> {
    if (original.empty()) return Error{Errc::invalid_argument, "the file has no name"};
    const auto routed = route(std::filesystem::absolute(original));
    if (!routed) return routed.error();
    path = *routed;
    return {};
  });
  return path;
}

Result<std::string> Client::route(const std::filesystem::path& original) {
  if (writing_) {
    writing_->original = original;
    if (writing_->file) return writing_->file->path().string();
    if (writing_->written)
      return Error{Errc::invalid_argument, text_of(writing_->name, writing_->version) + " has its regions already"};
    if (auto named = write_named(); !named && !failure_) failure_ = named.error();  // so that one file at most waits
    RoutedFile file(routed_path(writing_->name, writing_->version));
    if (auto made = file.prepare(); !made) return made.error();
    return writing_->file.emplace(std::move(file)).path().string();
  }
  if (!reading_) return no_phase("Checkpoint_begin or Restart_begin");
  if (reading_->file) return reading_->file->path().string();
  const std::string text = text_of(reading_->name, reading_->version);
  const auto size = reading_->sizes.find(static_cast<int>(kFileRegion));
  if (size == reading_->sizes.end() || reading_->sizes.size() != 1)
    return Error{Errc::invalid_argument, text + " was written as regions: call Recover_mem"};
  RoutedFile file(routed_path(reading_->name, reading_->version));
  if (auto made = file.create(size->second); !made) return made.error();
  const Target target{kFileRegion, file.data(), size->second};
  if (auto read = restore(std::span(&target, 1)); !read) return read.error();
  return reading_->file.emplace(std::move(file)).path().string();
}

// --- prefetching

bool Client::prefetch_enqueue(const std::string& name, int version) {
  return guarded("Prefetch_enqueue", [&]() -> Result<void> {
    if (auto valid = check(name, version); !valid) return valid;
    const auto series = names_.find(name);
    return ahead_.enqueue(group_->store(), name, version,
                          series == names_.end() ? std::nullopt : series->second.ahead(version));
  });
}

bool Client::prefetch_start() {
  return guarded("Prefetch_start", [&] { return ahead_.start(group_->store()); });
}

bool Client::prefetched(const std::string& name, int version, int id) {
  bool there = false;
  guarded("Next_prefetched", [&]() -> Result<void> {
    if (auto valid = check(name, version); !valid) return valid;
    const History history = group_->store().history(name);
    const auto stored = ahead_.stored(group_->store(), name, version);
    if (!stored) return stored.error();
    const auto tier = history.tier_of(*stored);
    if (!tier) return tier.error();
    const auto info = history.info(*stored);
    if (!info) return info.error();
    const bool has = std::ranges::any_of(
        info->regions, [&](const RegionInfo& region) { return region.id == static_cast<std::uint32_t>(id); });
    if (!has)
      return Error{Errc::invalid_argument, "region " + std::to_string(id) + " is not in " + text_of(name, version)};
    there = *tier == group_->store().stats().tiers.front().name;
    return {};
  });
  return there;
}

std::string Client::metrics() {
  constexpr std::size_t kRoom = 1024;
  std::string text;
  guarded("Get_trf_metrics", [&]() -> Result<void> {
    std::string all;
    for (const LinkStats& link : group_->store().stats().links) {
      const auto to = link.name.find('>');
      if (to == std::string::npos || to + 1 == link.name.size()) continue;
      const auto letter = [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); };
      all += (all.empty() ? "" : ", ") + std::string(1, letter(link.name[0])) + "to" + letter(link.name[to + 1]) +
             " : " + std::to_string(link.bytes);
    }
    if (all.size() + 3 > kRoom) return Error{Errc::too_large, "there are too many links for 1,024 bytes"};
    text = "{" + all + "}";
    return {};
  });
  return text;
}

std::size_t Client::saved_size(const std::string& name, int version, int id) {
  std::size_t size = kNoSize;
  guarded("Recover_ckpt_size", [&]() -> Result<void> {
    if (auto valid = check(name, version); !valid) return valid;
    const auto stored = ahead_.stored(group_->store(), name, version);
    if (!stored) return stored.error();
    const auto info = group_->store().history(name).info(*stored);
    if (!info) return info.error();
    for (const RegionInfo& region : info->regions)
      if (region.id == static_cast<std::uint32_t>(id)) size = region.bytes;
    return {};
  });
  return size;
}

}  // namespace ebb::veloc
