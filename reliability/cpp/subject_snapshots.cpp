#include "reliability/cpp/subject_snapshots.hpp"

#include <cstring>
#include <stdexcept>
#include <sys/mman.h>

namespace ebb::trials {
namespace {

constexpr std::size_t kPage = os::kBlock, kPages = 96;

struct Head {
  std::uint64_t at = 0, bytes = 0;
  storage::Checksum sum{};  // of the other pages
};

storage::Checksum sum_of(std::span<const std::byte> memory) { return storage::checksum_of(memory.subspan(kPage)); }

}  // namespace

TriedMemory::TriedMemory() {
  void* const mapped = ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("no memory to protect");
  memory_ = {static_cast<std::byte*>(mapped), kPages * kPage};
}

TriedMemory::~TriedMemory() { ::munmap(memory_.data(), memory_.size()); }

void TriedMemory::put(const Bytes& contents) {
  const std::size_t pages = (contents.size() + kPage - 1) / kPage;
  if (pages >= kPages) throw std::logic_error("contents that the memory does not hold");
  Head head{(1 + puts_++ * 7 % (kPages - pages)) * kPage, contents.size(), {}};
  std::ranges::copy(contents, memory_.begin() + static_cast<std::ptrdiff_t>(head.at));
  head.sum = sum_of(memory_);
  std::memcpy(memory_.data(), &head, sizeof head);
}

std::optional<Bytes> TriedMemory::taken(std::span<const std::byte> memory) {
  Head head;
  if (memory.size() != kPages * kPage) return {};
  std::memcpy(&head, memory.data(), sizeof head);
  if (head.at > memory.size() || head.bytes > memory.size() - head.at || head.sum != sum_of(memory)) return {};
  const auto found = memory.subspan(head.at, head.bytes);
  return Bytes(found.begin(), found.end());
}

// The first time it goes on from what is there, as a program that starts again.
Result<void> SnapshotSubject::protect() {
  if (protected_) return {};
  const std::span<std::byte> memory = all();
  if (auto done = store().protect(0, memory.data(), memory.size(), {.zone = kPage}); !done) return done;
  protected_ = true;
  if (const auto newest = store().latest(); newest && *newest)
    static_cast<void>(
        static_cast<bool>(store().restore(**newest, {{0, memory.data(), memory.size()}}, {.keep = true})));
  return {};
}

Result<void> SnapshotSubject::write(const Made& made, const Bytes& contents) {
  if (!made.history.empty()) return StoreSubject::write(made, contents);
  if (auto done = protect(); !done) return done;
  put(contents);
  const auto cut = store().snapshot(made.version, {.metadata = "take " + std::to_string(made.take)});
  return cut ? Result<void>() : cut.error();
}

Result<Bytes> SnapshotSubject::read(const std::string& history, Version version) {
  auto memory = StoreSubject::read(history, version);
  if (!history.empty() || !memory) return memory;
  auto found = taken(*memory);
  return found ? std::move(*found) : std::move(*memory);  // never written to
}

}  // namespace ebb::trials
