// ebbtide/admin.hpp over the files of this machine.
#include "ebbtide/admin.hpp"

#include "storage/admin/collect.hpp"
#include "storage/scan/record_reader.hpp"

namespace ebb::admin {

struct Scan {
  std::vector<storage::RecordHead> heads;  // of Listing::checkpoints
};

struct CheckpointReader::State {
  State(const std::filesystem::path& directory, const storage::RecordHead& head) : reader(files, directory, head) {}
  platform::PosixFiles files;
  storage::RecordReader reader;
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

}  // namespace

Result<Listing> ls(const std::filesystem::path& directory) {
  platform::PosixFiles files;
  auto seen = storage::inspect(files, directory);
  if (!seen) return seen.error();
  Listing out{.directory = seen->directory,
              .id = seen->head.store,
              .format = storage::kFormat,
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
  for (const storage::Inspected& record : seen->records) {
    out.checkpoints.push_back(public_checkpoint(record));
    scan.heads.push_back(record.head);
  }
  out.scan = std::make_shared<const Scan>(std::move(scan));
  return out;
}

std::vector<Verdict> verify(const Listing& listing, const ReadOptions& options) {
  platform::PosixFiles files;
  const auto verified =
      storage::verify_all(files, listing.directory, listing.scan->heads, options.threads, options.progress);
  std::vector<Verdict> out;
  for (std::size_t i = 0; i < verified.size(); ++i) {
    const Checkpoint& checkpoint = listing.checkpoints.at(i);
    out.push_back({verified[i].kind, public_damage({verified[i].damage, checkpoint.history, checkpoint.version})});
  }
  return out;
}

CheckpointReader::CheckpointReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

const CheckpointInfo& CheckpointReader::info() const { return state_->reader.header().description.info; }

Result<std::span<const std::byte>> CheckpointReader::next() { return state_->reader.next(); }

Damage CheckpointReader::trouble() const {
  const storage::Description& description = state_->reader.header().description;
  return public_damage({state_->reader.trouble(), description.history, description.version});
}

Result<CheckpointReader> read(const Listing& listing, std::size_t index) {
  if (index >= listing.checkpoints.size()) return Error{Errc::invalid_argument, "there is no such record"};
  auto state = std::make_unique<CheckpointReader::State>(listing.directory, listing.scan->heads.at(index));
  if (auto opened = state->reader.open(); !opened) return opened.error();
  return CheckpointReader(std::move(state));
}

Result<Collected> gc(const std::filesystem::path& directory, const GcOptions& options) {
  platform::PosixFiles files;
  auto done = storage::collect(files, directory, options);
  if (!done) return done.error();
  return Collected{.removals = std::move(done->removals),
                   .damages = public_damages(done->damages),
                   .segments = std::move(done->segments),
                   .left_over_files = done->left_over_files,
                   .allocated_before = done->allocated_before,
                   .allocated_after = done->allocated_after,
                   .ended = done->ended};
}

}  // namespace ebb::admin
