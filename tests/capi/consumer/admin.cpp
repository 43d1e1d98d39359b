// A user's program that looks after stores, and asks what the machine has: ebbtide/admin.hpp and ebbtide/machine.hpp,
// and lent pages and a recorder of writes, which C does not have.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ebbtide/admin.hpp>
#include <ebbtide/lent_pages.hpp>
#include <ebbtide/machine.hpp>
#include <ebbtide/store.hpp>
#include <ebbtide/write_recorder.hpp>

namespace {

const std::filesystem::path kDirectory = std::filesystem::current_path() / "admin-store";
const std::vector<char> kField(100'000, 'x');

void write_three() {
  std::filesystem::remove_all(kDirectory);
  ebb::Store store = ebb::Store::open({.device = "cpu",
                                       .directory = kDirectory,
                                       .device_cache = 1 << 20,
                                       .host_cache = 1 << 20,
                                       .disk = 64 << 20,
                                       .durability = ebb::Durability::process})
                         .value();
  for (ebb::Version version = 0; version < 3; ++version) {
    store.checkpoint(version, {{7, kField.data(), kField.size()}}, {.metadata = "m"}).value();
  }
  store.close().value();
}

bool look() {
  namespace admin = ebb::admin;
  const admin::Listing seen = admin::ls(kDirectory).value();
  if (seen.checkpoints.size() != 3 || !seen.damages.empty() || !seen.index || seen.segments.empty()) return false;
  if (seen.durability != ebb::Durability::process || seen.directory != kDirectory) return false;
  const std::vector<admin::Verdict> verdicts = admin::verify(seen);
  const auto intact = [](const admin::Verdict& one) { return one.kind == admin::Verdict::Kind::intact; };
  return verdicts.size() == 3 && std::all_of(verdicts.begin(), verdicts.end(), intact);
}

bool read() {
  const ebb::admin::Listing seen = ebb::admin::ls(kDirectory).value();
  ebb::admin::CheckpointReader reader = ebb::admin::read(seen, 2).value();
  if (reader.info().metadata != "m" || reader.info().regions.at(0).id != 7) return false;
  std::size_t bytes = 0;
  for (auto piece = reader.next().value(); !piece.empty(); piece = reader.next().value()) {
    if (std::memcmp(piece.data(), kField.data(), std::min(piece.size(), kField.size() - bytes)) != 0) return false;
    bytes += piece.size();
  }
  return bytes >= kField.size() && ebb::admin::read(seen, 3).error().code == ebb::Errc::invalid_argument;
}

bool damage_and_collect() {
  namespace admin = ebb::admin;
  const admin::Checkpoint hit = admin::ls(kDirectory).value().checkpoints.at(1);
  std::FILE* file = std::fopen((kDirectory / hit.file).c_str(), "r+b");
  if (!file) return false;
  std::fseek(file, static_cast<long>(hit.offset + hit.record_bytes - 8192), SEEK_SET);
  std::fputs("other bytes", file);
  std::fclose(file);
  const admin::Verdict verdict = admin::verify(admin::ls(kDirectory).value(), {.threads = 1}).at(1);
  if (verdict.kind != admin::Verdict::Kind::damaged || verdict.damage.version != 1) return false;
  const admin::Collected dry = admin::gc(kDirectory, {.keep_last = 1, .damaged = true, .dry_run = true}).value();
  const admin::Collected done = admin::gc(kDirectory, {.keep_last = 1, .damaged = true}).value();
  const admin::Listing after = admin::ls(kDirectory).value();
  return dry.removals.size() == 2 && done.removals.size() == 2 && after.checkpoints.size() == 1 &&
         after.checkpoints[0].version == 2 && done.allocated_after < done.allocated_before &&
         admin::ls("/nowhere/at/all").error().code == ebb::Errc::not_a_store;
}

bool machine() {
  namespace machine = ebb::machine;
  if (machine::gpus().empty() != !machine::gpu_absent_reason().empty() || machine::gpu_of(kField.data())) return false;
  if (machine::finish(1000, 0).error().code != ebb::Errc::unsupported) return false;
  if (machine::memory_limits().value().available == 0 || machine::file_system("/").value().total_bytes == 0)
    return false;
  if (machine::link_rates("cpu", 1 << 20).value().device_copy <= 0) return false;
  static_cast<void>(machine::io_uring_absent_reason());
  const machine::Plan plan =
      machine::plan({.device = "cpu", .directory = kDirectory, .device_cache = 1 << 20, .host_cache = 0}).value();
  return plan.device == 1 << 20 && plan.host == 0 && plan.disk > 0 && plan.directory == kDirectory;
}

bool lend() {
  ebb::Store store = ebb::Store::open({.device = "cpu", .device_cache = 1 << 20, .host_cache = 0, .disk = 0}).value();
  const ebb::Source room{.id = 0, .data = nullptr, .bytes = 4096};
  ebb::Reservation reservation = store.reserve(0, std::span(&room, 1)).value();
  ebb::LentPages lent = ebb::LentPages::lend(reservation.data(), reservation.bytes()).value();
  std::memset(lent.data(), 5, reservation.bytes());
  lent.give_back(true);
  reservation.commit().value();
  std::memset(lent.data(), 6, 4096);
  return store.borrow(0).value().region(0)[4095] == std::byte{5};
}

bool record() {
  auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(4096, 8 * 4096));
  ebb::WriteRecorder recorder = ebb::WriteRecorder::start(memory, 8 * 4096).value();
  recorder.cut().value();
  memory[3 * 4096] = 1;
  const std::vector<ebb::RecordedWrite> writes = recorder.stop().value();
  std::free(memory);
  return writes.size() == 1 && writes[0].page == 3 && writes[0].nanoseconds >= 0;
}

}  // namespace

int main() {
  write_three();
  const bool right[] = {look(), read(), damage_and_collect(), machine(), lend(), record()};
  for (const bool one : right) std::printf("%d ", one);
  return std::all_of(std::begin(right), std::end(right), [](bool one) { return one; }) ? 0 : 1;
}
