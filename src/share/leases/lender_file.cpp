#include "share/leases/lender_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "share/pool/pool_file.hpp"

namespace ebb::share {
namespace {

constexpr std::string_view kLenderEnding = ".lends.";
constexpr std::uint64_t kLenderMagic = 0x3253444e454c4245;  // "EBLENDS2"
constexpr std::size_t kRowWords = 8, kWords = os::kBlock / sizeof(std::uint64_t), kMostRows = kWords / kRowWords - 1;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

std::string LenderName::file() const {
  return group + std::string(kLenderEnding) + std::to_string(process.pid) + "-" + std::to_string(process.start) + "-" +
         std::to_string(number);
}

std::string LenderName::socket() const {
  return "lends-" + std::to_string(process.pid) + "-" + std::to_string(process.start) + "-" + std::to_string(number);
}

std::optional<LenderName> LenderName::of_file(std::string_view name) {
  const auto at = name.rfind(kLenderEnding);
  if (at == name.npos || at == 0) return {};
  const std::string_view numbers = name.substr(at + kLenderEnding.size());
  const auto first = numbers.find('-'), second = numbers.rfind('-');
  if (first == numbers.npos || first == second) return {};
  const auto pid = number_in(numbers.substr(0, first)), number = number_in(numbers.substr(second + 1));
  const auto start = number_in(numbers.substr(first + 1, second - first - 1));
  if (!pid || !start || !number || *pid == 0 || *pid > INT32_MAX || *number > UINT32_MAX) return {};
  return LenderName{
      std::string(name.substr(0, at)), {static_cast<pid_t>(*pid), *start}, static_cast<std::uint32_t>(*number)};
}

Result<LenderFile> LenderFile::create(std::shared_ptr<os::SharedMemory> memory, LenderName name) {
  for (;; ++name.number) {
    auto file = memory->create(name.file());
    if (!file) return file.error();
    if (!*file) continue;  // another store of this process
    const os::FileRange all{0, os::kBlock};
    auto ready = (*file)->hold(name.process);
    if (ready) ready = (*file)->allocate(all);
    auto mapped = ready ? (*file)->map(std::array{all}) : Result<os::SharedMapping>(ready.error());
    if (mapped) return LenderFile(std::move(memory), std::move(*file), std::move(name), std::move(*mapped));
    static_cast<void>(memory->remove(name.file()));
    return mapped.error();
  }
}

LenderFile::~LenderFile() {
  if (words_.data() != nullptr) static_cast<void>(memory_->remove(name_.file()));
}

void LenderFile::write(const LenderState& state) {
  const SharedWords word(words_.data());
  const auto put = [&](std::size_t at, std::uint64_t value) {
    word(at * sizeof value).store(value, std::memory_order_release);
  };
  const std::size_t rows = std::min(state.leases.size(), kMostRows);
  for (std::size_t row = 0; row < rows; ++row) {
    const LeaseRow& lease = state.leases[row];
    const std::size_t at = (row + 1) * kRowWords;
    put(at, lease.lease);
    put(at + 1, static_cast<std::uint64_t>(lease.borrower));
    put(at + 2, lease.bytes);
    put(at + 3, static_cast<std::uint64_t>(lease.state));
  }
  put(1, state.gpu ? static_cast<std::uint64_t>(*state.gpu) + 1 : 0);
  put(2, state.offered);
  put(3, state.leases.size());
  put(4, state.link);
  put(0, kLenderMagic);
}

Result<std::vector<LenderName>> find_lenders(os::SharedMemory& memory, os::Files& files) {
  const auto names = memory.list();
  if (!names) return names.error();
  std::vector<LenderName> found;
  for (const std::string& name : *names) {
    auto lender = LenderName::of_file(name);
    if (lender && os::is_running(files, lender->process)) found.push_back(std::move(*lender));
  }
  return found;
}

Result<std::optional<LenderState>> read_lender(os::SharedMemory& memory, const LenderName& name) {
  const auto file = memory.open(name.file());
  if (!file) return file.error();
  if (!*file) return std::optional<LenderState>();
  std::array<std::uint64_t, kWords> words{};
  if (auto read = (*file)->read(0, std::as_writable_bytes(std::span(words))); !read) {
    if (read.error().code == Errc::damaged) return std::optional<LenderState>();  // it is being created
    return read.error();
  }
  if (words[0] != kLenderMagic) return std::optional<LenderState>();
  LenderState state{.offered = words[2], .link = static_cast<std::uint32_t>(words[4])};
  if (words[1] > 0) state.gpu = static_cast<int>(words[1] - 1);
  const std::size_t rows = std::min<std::size_t>(words[3], kMostRows);
  state.not_shown = words[3] - rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = (row + 1) * kRowWords;
    if (words[at + 3] > static_cast<std::uint64_t>(planner::LeaseState::orphaned)) continue;
    state.leases.push_back({static_cast<planner::LeaseId>(words[at]), static_cast<pid_t>(words[at + 1]), words[at + 2],
                            static_cast<planner::LeaseState>(words[at + 3])});
  }
  return std::optional(std::move(state));
}

void remove_dead_lenders(const NodeSeams& seams, os::Files& files) {
  const auto names = seams.memory->list();
  if (!names) return;
  for (const std::string& name : *names) {
    const auto lender = LenderName::of_file(name);
    if (!lender) continue;
    const auto file = seams.memory->open(name);
    if (!file || !*file || may_use(lender->process, **file, files)) continue;
    static_cast<void>(seams.sockets->listen(lender->socket()));  // what is left of its name goes with this
    static_cast<void>(seams.memory->remove(name));
  }
}

}  // namespace ebb::share
