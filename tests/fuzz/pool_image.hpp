#pragma once
// A pool's file in short, as fuzz inputs have it: the header's first sector, the words of some processes and slabs,
// then entries of the list of process 0, each with its mark. Missing bytes are zeros.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "share/pool/handover_list.hpp"
#include "storage/format/sector.hpp"

namespace ebb::fuzz {

struct PoolImage {
  static constexpr std::size_t kProcesses = 4, kProcessWords = 4, kSlabs = 8, kEntryWords = 13, kSummedWords = 11;
  using Words = std::vector<std::uint64_t>;

  std::vector<std::byte> header = std::vector<std::byte>(os::kBlock);
  Words processes = Words(kProcesses * kProcessWords), slabs = Words(kSlabs);
  std::vector<Words> entries;  // kEntryWords and the mark, each

  static PoolImage read(std::span<const std::byte> from) {
    PoolImage image;
    take(from, image.header.data(), storage::kSector);
    take(from, image.processes.data(), 8 * image.processes.size());
    take(from, image.slabs.data(), 8 * image.slabs.size());
    while (!from.empty()) {
      image.entries.emplace_back(kEntryWords + 1);
      take(from, image.entries.back().data(), 8 * (kEntryWords + 1));
    }
    return image;
  }
  std::vector<std::byte> write() const {
    std::vector<std::byte> out(header.begin(), header.begin() + storage::kSector);
    const auto put = [&out](const Words& words) {
      const auto bytes = std::as_bytes(std::span(words));
      out.insert(out.end(), bytes.begin(), bytes.end());
    };
    put(processes);
    put(slabs);
    for (const Words& entry : entries) put(entry);
    return out;
  }

 private:
  static void take(std::span<const std::byte>& from, void* to, std::size_t bytes) {
    bytes = std::min(bytes, from.size());
    if (bytes != 0) std::memcpy(to, from.data(), bytes);
    from = from.subspan(bytes);
  }
};

/// The tables and the list of process 0 of a pool, in memory.
struct PoolMemory {
  explicit PoolMemory(const share::PoolShape& of) : shape(of), tables(of.tables_end() / 8), list(of.list_bytes() / 8) {}
  PoolMemory(const share::PoolShape& of, const PoolImage& image) : PoolMemory(of) {
    std::ranges::copy(image.processes, tables.begin() + static_cast<std::ptrdiff_t>(of.process_at(0) / 8));
    for (std::uint32_t i = 0; i < std::min<std::size_t>(of.slabs(), image.slabs.size()); ++i) {
      tables[of.slab_word_at(i) / 8] = image.slabs[i];
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(of.list_entries, image.entries.size()); ++i) {
      std::copy_n(image.entries[i].begin(), PoolImage::kEntryWords, &list[entry_at(i)]);
      list[of.marks_at() / 8 + i] = image.entries[i].back();
    }
  }
  PoolImage image(std::size_t entries) const {
    PoolImage out;
    std::copy_n(&tables[shape.process_at(0) / 8], out.processes.size(), out.processes.begin());
    for (std::uint32_t i = 0; i < std::min<std::size_t>(shape.slabs(), out.slabs.size()); ++i) {
      out.slabs[i] = tables[shape.slab_word_at(i) / 8];
    }
    for (std::size_t i = 0; i < entries; ++i) {
      out.entries.emplace_back(&list[entry_at(i)], &list[entry_at(i)] + PoolImage::kEntryWords);
      out.entries.back().push_back(list[shape.marks_at() / 8 + i]);
    }
    return out;
  }
  share::PoolTables view() { return {reinterpret_cast<std::byte*>(tables.data()), shape}; }
  share::HandoverList list_of(share::Member member) {
    return {reinterpret_cast<std::byte*>(list.data()), shape, view(), member};
  }
  static std::size_t entry_at(std::size_t place) { return place * share::kEntryBytes / 8; }

  share::PoolShape shape;
  PoolImage::Words tables, list;
};

}  // namespace ebb::fuzz
