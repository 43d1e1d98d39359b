// ebbtide/admin.hpp over the files of this machine.
#include "ebbtide/admin.hpp"

#include <map>
#include <optional>
#include <set>

#include "planner/retention.hpp"
#include "storage/admin/collect.hpp"
#include "storage/admin/repack.hpp"
#include "storage/admin/snapshot_pieces.hpp"
#include "storage/admin/snapshot_record.hpp"
#include "storage/scan/pairing.hpp"
#include "storage/scan/record_reader.hpp"

namespace ebb::admin {

struct Scan {
  std::vector<storage::RecordHead> heads;               // of Listing::checkpoints
  std::size_t local = 0;                                // so many of them, the first, are not in Listing::shared
  bool paired = false;                                  // as storage::Inspection::paired
  storage::HeadsByHistory pieces;                       // of snapshots
  std::multimap<std::string, std::size_t> piece_index;  // in Listing::checkpoints
};

struct CheckpointReader::Impl {
  Impl(const std::filesystem::path& directory, const storage::RecordHead& head) : reader(files, directory, head) {}
  os::PosixFiles files;
  storage::RecordReader reader;
  std::shared_ptr<const Scan> scan;
  std::optional<storage::SnapshotContent> snapshot;
};

namespace {

Damage public_damage(const storage::InspectedDamage& one) {
  return {one.damage.file, one.damage.offset, one.damage.what, one.history, one.version};
}

std::vector<Damage> public_damages(const std::vector<storage::InspectedDamage>& damages) {
  std::vector<Damage> out;
  for (const storage::InspectedDamage& one : damages) out.push_back(public_damage(one));
  return out;
}

std::uint32_t format_of(const std::vector<storage::Inspected>& records) {
  std::uint32_t newest = 1;
  for (const storage::Inspected& record : records) newest = std::max(newest, record.head.format());
  return newest;
}

std::chrono::sys_time<std::chrono::nanoseconds> time_of(std::int64_t ns) {
  return std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(ns));
}

Checkpoint public_checkpoint(const storage::Inspected& record) {
  const storage::RecordHead& head = record.head;
  return {.history = record.history,
          .version = head.version,
          .bytes = head.payload_bytes,
          .regions = head.regions,
          .written = time_of(head.written_ns),
          .file = storage::segment_name(head.place.segment),
          .offset = head.place.offset,
          .record_bytes = head.record_bytes,
          .sequence = head.sequence,
          .superseded = record.superseded};
}

const std::filesystem::path& directory_of(const Listing& listing, std::size_t index) {
  return index < listing.scan->local ? listing.directory : listing.shared;
}

void add_records(Listing& out, Scan& scan, const std::vector<storage::Inspected>& records,
                 const std::filesystem::path& directory) {
  for (const storage::Inspected& record : records) {
    out.checkpoints.push_back(public_checkpoint(record));
    out.checkpoints.back().shared = !out.shared.empty();
    scan.heads.push_back(record.head);
    if (record.superseded || !storage::is_snapshot_piece(record)) continue;
    scan.pieces.emplace(record.history, storage::PlacedHead{directory, record.head});
    scan.piece_index.emplace(record.history, scan.heads.size() - 1);
  }
}

// Of a version that both directories have, the shared one's is a copy, or one of them was written before the other.
void mark_copies(Listing& listing, const Scan& scan) {
  std::map<std::pair<std::string_view, Version>, std::size_t> local;
  for (std::size_t i = 0; i < listing.checkpoints.size(); ++i) {
    Checkpoint& one = listing.checkpoints[i];
    if (one.superseded) continue;
    const auto [at, first] = local.try_emplace({one.history, one.version}, i);
    if (first) continue;
    Checkpoint& other = listing.checkpoints[at->second];
    one.copy = scan.heads[i].body == scan.heads[at->second].body;
    if (!one.copy) (one.sequence < other.sequence ? one : other).superseded = true;
  }
}

// The best of what was found of a piece.
Verdict::Kind kind_of_piece(const Scan& scan, const std::vector<Verdict>& verdicts, const std::string& name) {
  Verdict::Kind best = Verdict::Kind::gone;
  const auto [first, last] = scan.piece_index.equal_range(name);
  for (auto at = first; at != last; ++at) {
    const Verdict::Kind kind = verdicts.at(at->second).kind;
    if (kind == Verdict::Kind::intact) return kind;
    if (at == first || kind == Verdict::Kind::unknown) best = kind;
  }
  return best;
}

// A snapshot is damaged if a piece that it needs is.
void find_lost_pieces(os::Files& files, const Listing& listing, std::vector<Verdict>& verdicts) {
  using Kind = Verdict::Kind;
  // A version that is missing here may be in the other directory.
  const bool paired = listing.shared.empty() && listing.scan->paired;
  for (std::size_t i = 0; i < verdicts.size() && !listing.scan->pieces.empty(); ++i) {
    const Checkpoint& checkpoint = listing.checkpoints.at(i);
    if (checkpoint.superseded || checkpoint.regions != 2 || verdicts[i].kind != Kind::intact) continue;
    storage::RecordReader reader(files, directory_of(listing, i), listing.scan->heads.at(i));
    if (!reader.open()) continue;
    const auto snapshot = storage::read_snapshot(reader);
    if (!snapshot || !*snapshot) continue;
    for (const std::string& name : storage::needed_pieces(checkpoint.history, **snapshot)) {
      const Kind kind = kind_of_piece(*listing.scan, verdicts, name);
      if (kind == Kind::intact || kind == Kind::unknown || (kind == Kind::gone && paired)) continue;
      verdicts[i].kind = kind == Kind::unreadable ? Kind::unreadable : Kind::damaged;
      verdicts[i].damage.file = directory_of(listing, i) / checkpoint.file;
      verdicts[i].damage.offset = checkpoint.offset;
      verdicts[i].damage.what =
          "it needs piece \"" + name + "\", which is " + (kind == Kind::gone ? "not there" : "damaged");
      break;
    }
  }
}

}  // namespace

Result<Listing> ls(const std::filesystem::path& directory, const std::filesystem::path& shared) {
  os::PosixFiles files;
  auto seen = storage::inspect(files, directory);
  if (!seen) return seen.error();
  Listing out{.directory = seen->directory,
              .shared = {},
              .id = seen->head.store,
              .format = format_of(seen->records),
              .durability = seen->head.level,
              .owner = seen->head.owner,
              .created = time_of(seen->head.created_ns),
              .index = seen->index,
              .checkpoints = {},
              .segments = std::move(seen->segments),
              .damages = public_damages(seen->damages),
              .left_over = std::move(seen->left_over),
              .others = std::move(seen->others),
              .scan = {}};
  Scan scan;
  add_records(out, scan, seen->records, out.directory);
  scan.paired = seen->paired;
  scan.local = scan.heads.size();
  if (!shared.empty()) {
    auto below = storage::inspect(files, shared);
    if (!below) return below.error();
    out.shared = below->directory;
    add_records(out, scan, below->records, out.shared);
    mark_copies(out, scan);
    for (Damage& damage : public_damages(below->damages)) out.damages.push_back(std::move(damage));
  }
  out.scan = std::make_shared<const Scan>(std::move(scan));
  return out;
}

std::vector<Verdict> verify(const Listing& listing, const ReadOptions& options) {
  os::PosixFiles files;
  const std::vector<storage::RecordHead>& heads = listing.scan->heads;
  const auto border = heads.begin() + static_cast<std::ptrdiff_t>(listing.scan->local);
  auto verified =
      storage::verify_all(files, listing.directory, {heads.begin(), border}, options.threads, options.progress);
  for (const storage::Verified& one :
       storage::verify_all(files, listing.shared, {border, heads.end()}, options.threads, options.progress))
    verified.push_back(one);
  std::vector<Verdict> out;
  for (std::size_t i = 0; i < verified.size(); ++i) {
    const Checkpoint& checkpoint = listing.checkpoints.at(i);
    out.push_back({verified[i].kind, public_damage({verified[i].damage, checkpoint.history, checkpoint.version})});
  }
  find_lost_pieces(files, listing, out);
  return out;
}

CheckpointReader::CheckpointReader(std::unique_ptr<Impl> state) : state_(std::move(state)) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

const CheckpointInfo& CheckpointReader::info() const {
  return state_->snapshot ? state_->snapshot->info() : state_->reader.header().description.info;
}

bool CheckpointReader::is_snapshot() const { return state_->snapshot.has_value(); }

Result<std::span<const std::byte>> CheckpointReader::next() {
  return state_->snapshot ? state_->snapshot->next() : state_->reader.next();
}

Damage CheckpointReader::trouble() const {
  const storage::Description& description = state_->reader.header().description;
  const storage::Damage& trouble = state_->snapshot ? state_->snapshot->trouble() : state_->reader.trouble();
  return public_damage({trouble, description.history, description.version});
}

Result<CheckpointReader> read(const Listing& listing, std::size_t index) {
  if (index >= listing.checkpoints.size()) return Error{Errc::invalid_argument, "there is no such record"};
  auto state = std::make_unique<CheckpointReader::Impl>(directory_of(listing, index), listing.scan->heads.at(index));
  if (auto opened = state->reader.open(); !opened) return opened.error();
  auto snapshot = storage::read_snapshot(state->reader);
  if (!snapshot) return snapshot.error();
  if (*snapshot) {
    state->scan = listing.scan;
    state->snapshot.emplace(state->files, listing.checkpoints.at(index).history, std::move(**snapshot),
                            listing.scan->pieces);
  }
  return CheckpointReader(std::move(state));
}

// Snapshots are packed anew when it is known which versions stay, and what that leaves over is collected once more. If
// a process has begun to write meanwhile, the next call does so.
Result<Collected> gc(const std::filesystem::path& directory, const GcOptions& options) {
  os::PosixFiles files;
  os::SteadyClock clock;
  auto done = storage::collect(files, directory, options);
  if (!done) return done.error();
  Collected out{.removals = std::move(done->removals),
                .repacked = {},
                .damages = public_damages(done->damages),
                .segments = std::move(done->segments),
                .left_over_files = done->left_over_files,
                .allocated_before = done->allocated_before,
                .allocated_after = done->allocated_after,
                .ended = done->ended};
  if (out.ended || done->paired) return out;  // maps in the other directory may need all of it
  auto repacked = storage::repack_snapshots(files, clock, directory, options.dry_run);
  if (!repacked && repacked.error().code == Errc::in_use) return out;
  if (!repacked) return repacked.error();
  out.repacked = std::move(*repacked);
  if (out.repacked.empty() || options.dry_run) return out;
  auto again = storage::collect(files, directory, {.threads = options.threads});
  if (!again && again.error().code == Errc::in_use) return out;
  if (!again) return again.error();
  out.allocated_after = again->allocated_after;
  return out;
}

std::vector<Version> retained(std::span<const Version> versions, std::uint64_t keep_last, std::uint64_t keep_every) {
  std::vector<planner::Retained> newest_first;
  for (auto one = versions.rbegin(); one != versions.rend(); ++one) newest_first.push_back({*one, true});
  std::set<Version> gone;
  for (const auto& [place, goes] : planner::dispensable({keep_last, keep_every}, newest_first))
    if (goes) gone.insert(newest_first[place].version);
  std::vector<Version> kept(versions.begin(), versions.end());
  std::erase_if(kept, [&](Version one) { return gone.contains(one); });
  return kept;
}

}  // namespace ebb::admin
