// A program of 0.1.0: every call and every field of <ebbtide/store.hpp>, which brought the other headers.
#include <cstring>
#include <ebbtide/store.hpp>

namespace {

bool write_and_read(ebb::History& history) {
  std::vector<double> field(1000, 1.5), back(1000);
  const std::size_t bytes = field.size() * sizeof(double);
  const ebb::Interrupt never = [] { return false; };
  const ebb::CheckpointOptions writing{
      .metadata = "m", .timeout = ebb::Seconds(1), .interrupted = never, .stream = std::nullopt};
  const ebb::RestoreOptions reading{
      .keep = true, .timeout = ebb::Seconds(10), .interrupted = never, .stream = std::nullopt};
  const ebb::Source source{.id = 3, .data = field.data(), .bytes = bytes};
  const ebb::Target target{.id = 3, .data = back.data(), .bytes = bytes};
  ebb::Future future = history.checkpoint(0, {source}, writing).value();
  future.wait("device", ebb::Seconds(10)).value();
  history.checkpoint(1, std::span(&source, 1)).value();
  if (!future.done() || future.error() || ebb::Future(future).done("device") != future.done("device")) return false;
  history.restore(0, {target}, reading).value();
  history.restore(0, std::span(&target, 1), reading).value();
  history.restore_async(0, std::span(&target, 1), {.keep = true}).value().wait().value();
  const ebb::CheckpointInfo info = history.info(0).value();
  const ebb::RegionInfo region = info.regions.at(0);
  if (info.metadata != "m" || info.bytes < bytes || region.id != 3 || region.bytes != bytes || region.offset != 0)
    return false;
  if (history.versions().value() != std::vector<ebb::Version>{0, 1} || history.name() != "h") return false;
  const std::vector<ebb::Version> order = {0, 1};
  history.hint(order).value();
  history.hint({1, 0}, true).value();
  history.hint_front(1).value();
  history.unhint(order).value();
  history.unhint().value();
  history.wait("device", ebb::Seconds(10), never).value();
  history.wait(0, "device", ebb::Seconds(10), never).value();
  return std::memcmp(field.data(), back.data(), bytes) == 0 &&
         history.latest(5, never).error().code == ebb::Errc::unsupported;
}

bool lend(ebb::History& history) {
  const ebb::Source room{.id = 7, .data = nullptr, .bytes = 4096};
  const ebb::HandBack how{.stream = std::nullopt, .hold = false, .check = false};
  ebb::Reservation reservation = history.reserve(2, std::span(&room, 1), {}).value();
  const std::shared_ptr<const void> mapping = reservation.mapping();
  const std::span<std::byte> region = reservation.region(7);
  std::memset(region.data(), 5, region.size());
  if (reservation.bytes() < 4096 || reservation.data() != region.data()) return false;
  reservation.commit(how).value();
  history.reserve(3, std::span(&room, 1)).value().abandon();
  ebb::Loan loan = history.borrow(2, {.keep = true}).value();
  const std::span<const std::byte> seen = loan.region(7);
  if (loan.bytes() < 4096 || loan.data() != seen.data() || seen[4095] != std::byte{5}) return false;
  loan.release(true, how).value();
  history.drop(2).value();
  history.drop().value();
  return true;
}

}  // namespace

bool use_store() {
  ebb::Options options{
      .device = "cpu", .device_cache = 1 << 20, .host_cache = 1 << 20, .disk = 0, .prefetch = ebb::Prefetch::manual};
  ebb::Store store = ebb::Store::open(options).value();
  ebb::History history = store.history("h", ebb::Order::none);
  history.start_prefetch().value();
  if (!write_and_read(history) || !lend(history)) return false;
  const ebb::Stats stats = store.stats();
  ebb::Store moved = std::move(store);
  moved.close([] { return false; }).value();
  return stats.checkpoints == 3;
}
