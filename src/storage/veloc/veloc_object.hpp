#pragma once
// One checkpoint in VELOC's files, as the storage of a rank has it.
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "os/files.hpp"
#include "storage/storage.hpp"
#include "storage/veloc/sha256.hpp"
#include "storage/veloc/veloc_file.hpp"
#include "storage/veloc/veloc_mark.hpp"

namespace ebb::storage {

using SharedFile = std::shared_ptr<const os::File>;

/// Thread safety: constant once it is in VelocObjects, whose lock guards the rest, except for what `opening` guards.
/// The bytes, blocks and raw sums of a range belong to the put of that range.
struct VelocObject {
  ObjectId id = 0;
  VelocName name;
  std::uint64_t bytes = 0;  // of the payload
  std::uint64_t sequence = 0;
  std::shared_ptr<const Description> description;  // of a found one with a mark: null until that was read
  VelocLayout layout;                              // with the description
  std::vector<Checksum> blocks;                    // none: what is read is believed
  VelocFileState file{};                           // once it is whole
  VelocPart part{};                                // of the file: all of it, unless that is aggregated
  std::filesystem::path path;                      // where its bytes are
  std::filesystem::path mark;                      // of a found one that has one
  bool counted = false, put = false, gone = false;
  bool named = false, waits = false;  // whole, under its final name; or until that is free
  bool linked = false;                // of a found one: VELOC's file is a link to `path`
  bool missed = false;                // somebody else has removed its file, or written it anew
  std::weak_ptr<const os::File> reading;
  std::size_t in_flight = 0;
  bool kept() const { return named || waits; }
  // While it is written.
  std::mutex opening;
  SharedFile writing;  // by opening, as the next
  bool created = false;
  std::vector<Checksum> raw;     // as VelocMarkOf::raw
  std::vector<bool> there;       // by block
  std::size_t missing = 0;       // blocks
  std::vector<std::byte> small;  // the payload, of one that fits a compact record
  Sha256Sum sum{};               // of the whole file, if it has a checksum file
  bool sum_checked = false;      // by opening: it matches its checksum file
};
using SharedVelocObject = std::shared_ptr<VelocObject>;
/// What a job reports that finds no memory: nobody catches what it throws.
Error no_memory_for(const VelocObject& object);

}  // namespace ebb::storage
