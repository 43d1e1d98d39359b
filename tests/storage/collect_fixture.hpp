#pragma once
// A store with every kind of record that gc handles, and its offered versions.
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>

#include "storage/admin/collect.hpp"
#include "storage/scan/newest.hpp"
#include "storage/scan/record_reader.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/power_loss.hpp"
#include "tests/storage/memory_store.hpp"

namespace ebb::storage {

using doubles::FaultyFiles;
using doubles::FileCall;
using doubles::MemoryFiles;
using doubles::PowerLoss;
using test::Bytes;
using test::describe;
using test::StoreImage;

using Name = std::pair<std::string, Version>;
using Contents = std::map<Name, Bytes>;

// What a store that is opened now offers, with its bytes. Nothing it offers may be damaged.
inline Contents offered(MemoryFiles& files) {
  Contents out;
  auto scanned = scan_store(files, test::kStore, true);
  if (!scanned) {
    ADD_FAILURE() << scanned.error().message;
    return out;
  }
  Newest counting;
  for (const ScannedSegment& segment : scanned->segments) counting.add(segment);
  std::map<Name, const ScannedRecord*> newest;
  for (const ScannedSegment& segment : scanned->segments) {
    for (const ScannedRecord& record : segment.records) {
      if (!counting.is_newest(record.head, record.history)) continue;
      const ScannedRecord*& at = newest[{record.history, record.head.version}];
      if (at == nullptr || at->head.sequence < record.head.sequence) at = &record;
    }
  }
  for (const auto& [name, record] : newest) {
    RecordReader reader(files, test::kStore, record->head);
    Bytes& bytes = out[name];
    auto opened = reader.open();
    if (!opened) {
      bytes = Bytes(1, std::byte{0xEE});  // like nothing that was written
      continue;
    }
    for (;;) {
      auto piece = reader.next();
      if (!piece) {
        bytes = Bytes(1, std::byte{0xEE});
        break;
      }
      if (piece->empty()) break;
      bytes.insert(bytes.end(), piece->begin(), piece->end());
    }
  }
  return out;
}

// An older record of a/1 is in a later file than the valid one; a/1 to a/3 are removed, a/9, b and c stay.
inline StoreImage busy() {
  StoreImage image;
  image.add(3, describe("a", 1, {7000}));
  image.add(1, describe("a", 1, {5000}));
  image.add(1, describe("b", 1, {3000}));
  image.add(1, describe("a", 2, {9000}));
  image.drop(image.add(3, describe("a", 5, {9000})));
  image.leave(1, 4, std::byte{0x22});
  image.add(1, describe("a", 9, {12'000}));
  image.leave(1, 6, std::byte{0x33});
  image.add(2, describe("a", 3, {6000}));
  image.add(3, describe("c", 1, {100}));
  image.files["index"] = encode_index(test::scan(image.files).value());
  return image;
}

inline const admin::GcOptions kLast{.keep_last = 1};

}  // namespace ebb::storage
