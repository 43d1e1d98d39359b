#include "storage/scan/newest.hpp"

#include <algorithm>
#include <cstring>

namespace ebb::storage {

namespace {

Checksum name_sum(std::string_view history) { return checksum_of(std::as_bytes(std::span(history))); }

}  // namespace

void Newest::add(const ScannedSegment& segment) {
  for (const ScannedRecord& record : segment.records) add(record.head, record.history);
  for (const ScannedSegment::Stretch& place : segment.waste) {
    if (place.head && place.head->history != Checksum{})
      add({place.head->history, place.head->version}, place.head->sequence);
  }
}

void Newest::add(const RecordHead& head, std::string_view history) {
  add({name_sum(history), head.version}, head.sequence);
}

bool Newest::is_newest(const RecordHead& head, std::string_view history) const {
  if (highest_.empty()) return true;
  const auto found = highest_.find({name_sum(history), head.version});
  return found == highest_.end() || found->second <= head.sequence;
}

void Newest::add(const Name& name, std::uint64_t sequence) {
  std::uint64_t& highest = highest_[name];
  highest = std::max(highest, sequence);
}

std::size_t Newest::Hash::operator()(const Name& name) const noexcept {
  std::size_t sum = 0;
  std::memcpy(&sum, name.history.data(), sizeof sum);
  return sum ^ (static_cast<std::size_t>(name.version) * 0x9e3779b97f4a7c15u);
}

}  // namespace ebb::storage
