// A store that fails as it is told: the C++ interface with nothing behind it.
//
// A version -n below zero is answered by Errc n; kThrow... are thrown out of the call. Calls without a version take the
// number that the store was opened with (`device_cache`); opening itself takes `host_cache`. A stream is refused by an
// error that tells its number and what came with it.
#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>

#include "ebbtide/store.hpp"

namespace ebb {
namespace {

constexpr Version kThrowBadAlloc = -100, kThrowLogicError = -101, kThrowNumber = -102, kThrowBadResult = -103;
constexpr Version kThrowInvalid = -104;

Error scripted(Version code) { return {static_cast<Errc>(-code), "scripted"}; }

Result<void> act(Version version) {
  switch (version) {
    case kThrowBadAlloc: throw std::bad_alloc();
    case kThrowLogicError: throw std::logic_error("scripted");
    case kThrowNumber: throw 7;
    case kThrowBadResult: throw BadResult(scripted(-static_cast<Version>(Errc::lost)));
    case kThrowInvalid: throw std::invalid_argument("scripted");
    default: break;
  }
  if (version < 0) return scripted(version);
  return {};
}

Result<void> refuse(const std::optional<StreamHandle>& stream, const char* with = "") {
  if (!stream) return {};
  return Error{Errc::unsupported, "stream " + std::to_string(*stream) + with};
}

std::array<std::byte, 64> memory;  // what is reserved and borrowed: region 0, and nothing else

}  // namespace

namespace store {
class Engine {
 public:
  explicit Engine(Version code) : code(code) {}
  Version code;
  static Future future(Version version) { return Future(std::make_shared<Waitable>(version)); }
  static Reservation reservation(Version version);
  static Loan loan(Version version);
};
struct Waitable {
  explicit Waitable(Version version) : version(version) {}
  Version version;
};
}  // namespace store

using store::Engine;

struct Reservation::Impl {
  Version version;
};
struct Loan::Impl {
  Version version;
};
// A handle of version 1000 + n fails with n when it is used.
constexpr Version later(Version version) { return version > 1000 ? 1000 - version : version; }

Future::Future() = default;
Future::Future(std::shared_ptr<store::Waitable> state) : state_(std::move(state)) {}
bool Future::done(std::optional<std::string_view> level) const {
  return static_cast<bool>(act(later(state_->version))) && level.value_or("") != "never";
}
Result<void> Future::wait(std::optional<std::string_view>, std::optional<Seconds>) const {
  return act(later(state_->version));
}
std::optional<Error> Future::error() const {
  const auto result = act(later(state_->version));
  return result ? std::nullopt : std::optional(result.error());
}

Reservation::Reservation(std::unique_ptr<Impl> state) : state_(std::move(state)) {}
Reservation::Reservation(Reservation&&) noexcept = default;
Reservation& Reservation::operator=(Reservation&&) noexcept = default;
Reservation::~Reservation() = default;
std::byte* Reservation::data() const { return memory.data(); }
std::size_t Reservation::bytes() const { return memory.size(); }
std::span<std::byte> Reservation::region(std::uint32_t id) const {
  if (id != 0) throw std::invalid_argument("no region");
  return memory;
}
Result<void> Reservation::commit(const HandBack& how) {
  if (auto refused = refuse(how.stream, how.hold ? ", hold" : ""); !refused) return refused;
  return act(later(state_->version));
}
void Reservation::abandon() { act(later(state_->version)).value(); }
Reservation Engine::reservation(Version version) {
  return Reservation(std::make_unique<Reservation::Impl>(Reservation::Impl{version}));
}

Loan::Loan(std::unique_ptr<Impl> state) : state_(std::move(state)) {}
Loan::Loan(Loan&&) noexcept = default;
Loan& Loan::operator=(Loan&&) noexcept = default;
Loan::~Loan() = default;
const std::byte* Loan::data() const { return memory.data(); }
std::size_t Loan::bytes() const { return memory.size(); }
std::span<const std::byte> Loan::region(std::uint32_t id) const {
  if (id != 0) throw std::invalid_argument("no region");
  return memory;
}
Result<void> Loan::release(bool keep, const HandBack& how) {
  if (auto refused = refuse(how.stream, keep ? ", keep" : how.hold ? ", hold" : ""); !refused) return refused;
  return act(later(state_->version));
}
Loan Engine::loan(Version version) { return Loan(std::make_unique<Loan::Impl>(Loan::Impl{version})); }

History::History(std::shared_ptr<Engine> engine, std::uint32_t id, std::string name,
                 std::shared_ptr<const store::InHand>)
    : engine_(std::move(engine)), id_(id), name_(std::move(name)) {}
const std::string& History::name() const { return name_; }

template <class T, class Make>
Result<T> scripted_handle(Version version, Make make) {
  if (auto result = act(version); !result) return result.error();
  return make(version);
}

Result<Future> History::checkpoint(Version version, std::span<const Source>, const CheckpointOptions& options) {
  if (options.interrupted && options.interrupted()) return Error{Errc::timed_out, "interrupted"};
  if (auto refused = refuse(options.stream); !refused) return refused.error();
  return scripted_handle<Future>(version, Engine::future);
}
Result<void> History::restore(Version version, std::span<const Target>, const RestoreOptions& options) {
  if (options.interrupted && options.interrupted()) return Error{Errc::timed_out, "interrupted"};
  if (auto refused = refuse(options.stream); !refused) return refused;
  return act(version);
}
Result<Future> History::restore_async(Version version, std::span<const Target>, const RestoreOptions& options) {
  if (auto refused = refuse(options.stream, ", async"); !refused) return refused.error();
  return scripted_handle<Future>(version, Engine::future);
}
Result<CheckpointInfo> History::info(Version version, std::optional<Seconds> /*timeout*/,
                                     const Interrupt& /*interrupted*/) const {
  if (auto result = act(version); !result) return result.error();
  return CheckpointInfo{{{0, 10, 0}, {7, 20, 256}}, "meta", 276, {1, 2}};
}
Result<std::vector<Version>> History::versions() const {
  if (auto result = act(engine_->code); !result) return result.error();
  return std::vector<Version>{1, 2, 3};
}
// The newest of 1, 2 and 3.
Result<std::optional<Version>> History::latest(std::optional<Version> at_most, const Interrupt&) {
  if (auto result = act(engine_->code); !result) return result.error();
  const Version newest = std::min<Version>(at_most.value_or(3), 3);
  return newest < 1 ? std::nullopt : std::optional(newest);
}
Result<void> History::hint(std::span<const Version> order, bool) {
  return act(order.empty() ? engine_->code : order[0]);
}
Result<void> History::hint_front(Version version) { return act(version); }
Result<void> History::unhint(std::span<const Version> versions) {
  return act(versions.empty() ? engine_->code : versions[0]);
}
Result<void> History::unhint() { return act(engine_->code); }
Result<void> History::start_prefetch() { return act(engine_->code); }
Result<void> History::wait(std::string_view, std::optional<Seconds>, const Interrupt&) { return act(engine_->code); }
Result<void> History::wait(Version version, std::string_view, std::optional<Seconds>, const Interrupt&) {
  return act(version);
}
Result<void> History::agree(Version version) { return act(version); }
Result<void> History::wait_for_drops(std::optional<Seconds>, const Interrupt&) { return act(engine_->code); }
Result<void> History::drop(Version version) { return act(version); }
Result<void> History::drop() { return act(engine_->code); }
Result<Reservation> History::reserve(Version version, std::span<const Source>, const CheckpointOptions& options) {
  if (auto refused = refuse(options.stream, ", reserve"); !refused) return refused.error();
  return scripted_handle<Reservation>(version, Engine::reservation);
}
Result<Loan> History::borrow(Version version, const RestoreOptions& options) {
  if (auto refused = refuse(options.stream, ", borrow"); !refused) return refused.error();
  return scripted_handle<Loan>(version, Engine::loan);
}

namespace files {
class OpenFile {
 public:
  explicit OpenFile(Version version) : version(later(version)) {}
  Version version;
};
}  // namespace files

File::File(std::unique_ptr<files::OpenFile> open) : open_(std::move(open)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;
std::uint64_t File::tell() const { return act(open_->version).value(), 7; }
std::uint64_t File::size() const { return act(open_->version).value(), 9; }
Result<std::uint64_t> File::read(std::span<std::byte> to, const Interrupt&) {
  if (auto result = act(open_->version); !result) return result.error();
  return to.size();
}
Result<void> File::write(std::span<const std::byte>, const Interrupt&) { return act(open_->version); }
Result<void> File::seek(std::uint64_t) { return act(open_->version); }
Result<void> File::truncate(std::uint64_t, const Interrupt&) { return act(open_->version); }
Result<void> File::close(const Interrupt&) { return act(open_->version); }
Result<void> File::wait(std::string_view, std::optional<Seconds>, const Interrupt&) { return act(open_->version); }

Result<File> Store::create_file(std::string, Version version, Seconds) {
  return scripted_handle<File>(version, [](Version code) { return File(std::make_unique<files::OpenFile>(code)); });
}
Result<File> Store::open_file(std::string name, std::optional<Version> version) {
  return create_file(std::move(name), version.value_or(1));
}
Result<std::vector<FileInfo>> Store::files(std::optional<std::string>) {
  if (auto result = act(engine_->code); !result) return result.error();
  return std::vector<FileInfo>{{"f", 1, 10}, {"f", 2, 20}};
}
Result<void> Store::drop_file(std::string, Version version) { return act(version); }

// A region is answered as the version that it would be below zero.
Result<void> Store::protect(std::uint32_t region, void*, std::size_t, const ProtectOptions&) {
  return act(-static_cast<Version>(region));
}
Result<void> Store::unprotect(std::uint32_t region, const Interrupt&) { return act(-static_cast<Version>(region)); }
Result<void> Store::touch(std::uint32_t region, std::uint64_t, std::uint64_t) {
  return act(-static_cast<Version>(region));
}
Result<Snapshot> Store::snapshot(Version version, const SnapshotOptions&) {
  return scripted_handle<Snapshot>(version, [](Version) { return Snapshot(); });
}
SnapshotStats Store::snapshot_stats() const { return {.zones = 3, .blocked_s = 0.5}; }
// Those of Snapshot itself: what `snapshot` gives here has neither failed nor ended.
bool Snapshot::done(std::optional<std::string_view>) const { return false; }
Result<void> Snapshot::wait(std::optional<std::string_view>, std::optional<Seconds>) const {
  return Error{Errc::timed_out, "scripted"};
}
Result<void> Snapshot::before_write(std::uint32_t, std::optional<StreamHandle>, const Interrupt&) const { return {}; }
std::optional<Error> Snapshot::error() const { return {}; }

Result<Store> Store::open(const Options& options) {
  if (auto result = act(-static_cast<Version>(options.host_cache.value_or(0))); !result) return result.error();
  const auto code = -static_cast<Version>(options.device_cache.value_or(0));
  if (options.log) {  // what it was opened with
    const auto shown = [](const auto& value) { return value ? std::to_string(*value) : std::string("unset"); };
    const std::string level = options.durability ? std::to_string(static_cast<int>(*options.durability)) : "unset";
    (*options.log)("durability " + level + ", readonly " + shown(options.readonly) + ", keep_last " +
                   shown(options.keep_last) + ", keep_every " + shown(options.keep_every));
  }
  return Store(std::make_shared<Engine>(code), 0, "");
}
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;
History Store::history(std::string name, Order) {
  act(engine_->code).value();
  return History(engine_, 1, std::move(name));
}
Result<void> Store::close(const Interrupt&, const std::optional<Durability>&) { return act(engine_->code); }
Result<void> Store::suspend_on(int signal, const SuspendOptions& options) {  // told as it was asked
  if (signal == 0) return act(engine_->code);
  return Error{Errc::unsupported, "signal " + std::to_string(signal) + ", level " + options.level.value_or("none") +
                                      ", within " + std::to_string(options.within.value_or(Seconds(-1)).count())};
}
Result<void> Store::check_suspended(const Interrupt&) { return act(engine_->code); }
Result<std::optional<std::int64_t>> Store::suspended() const {
  if (auto result = act(engine_->code); !result) return result.error();
  return std::optional<std::int64_t>(17);
}
Result<void> Store::clear_suspended() { return act(engine_->code); }
Result<void> Store::lend(std::uint64_t, Seconds within, const Interrupt&) {
  if (within < Seconds(0)) return Error{Errc::timed_out, "at once"};
  return act(engine_->code);
}
Stats Store::stats() const {
  act(engine_->code).value();
  Stats stats;
  stats.tiers = {{.name = "device", .capacity = 64, .used = 32}};
  stats.tiers[0].arena = {.strategy = "incremental",
                          .ready = 1,
                          .limit = 2,
                          .touched = 3,
                          .pinned = 4,
                          .mapped = 5,
                          .piece = 6,
                          .pieces = 7,
                          .huge_pages = true,
                          .trouble = "mlock \"no\""};
  stats.links = {{.name = "app>device", .bytes = 5, .busy_s = 0.25}};
  stats.blocked_s["room"] = 1.5;
  stats.blocked_s["odd"] = 1.0 / 0.0;
  stats.restores = 4;
  stats.found_on = {-1, 0};
  stats.prefetch_distance = {3, 2};
  stats.settings = "a \"b\"\n\\c";
  return stats;
}

Result<Track> parse_track(std::string_view text) {
  if (text == "digest") return Track::digest;
  return Error{Errc::invalid_argument, "no track '" + std::string(text) + "'"};
}

Result<void> set_option(Options& options, std::string_view key, std::string_view text) {
  if (key == "device_cache")
    options.device_cache = std::stoull(std::string(text));
  else if (key == "host_cache")
    options.host_cache = std::stoull(std::string(text));
  else if (key == "durability" && text == "storage")
    options.durability = Durability::storage;
  else
    return Error{Errc::invalid_argument, "no option '" + std::string(key) + "'"};
  return {};
}

}  // namespace ebb
