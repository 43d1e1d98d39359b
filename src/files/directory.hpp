#pragma once
// Which files a store has: what is whole, what is left of files that were never closed, what newer ones make up for.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebbtide/store.hpp"
#include "files/file_names.hpp"
#include "files/file_record.hpp"
#include "store/engine.hpp"

namespace ebb::files {

/// Thread safety: every method may be called from any thread; it keeps nothing but the engine.
class Directory {
 public:
  /// The parts of each file that has versions: names of its histories behind FileName::prefix().
  using Parts = std::map<std::pair<std::string, Version>, std::vector<std::string>>;

  explicit Directory(std::shared_ptr<store::Engine> engine) : engine_(std::move(engine)) {}

  History history(std::string name) const { return engine_->view(std::move(name)); }
  /// Why a call of the program may not begin, if so.
  std::optional<Error> suspended(const Interrupt& interrupted) const {
    return engine_->suspender().refusal(interrupted);
  }
  /// The cache's memory is the host's, and can be filled by the application.
  bool lends() const { return !engine_->device()->gpu(); }
  PieceLayout layout() const;
  /// Error unknown_version: it was never closed, or a piece is missing.
  Result<FileRecord> record_of(const FileName& file) const;
  Result<Parts> parts(const std::optional<std::string>& name = {}) const;
  /// Keeps others from writing the file for as long as it is held. Error version_exists: another does.
  Result<Reservation> reserve_writer(const FileName& file) const { return history(file.writer()).reserve(0, {}); }
  /// The record goes first: what a crash leaves is no file.
  Result<void> drop(const FileName& file, const std::vector<std::string>& parts) const;
  /// Drops what is there of `writing`, and of files of its name that have no record and whose writer is gone.
  Result<void> drop_left_over(const FileName& writing) const;
  /// Has retention act on files from now on: on those of a name when one is durable, and on all when the store closes.
  void begin_retention() const;

 private:
  void retire(const Parts& of_one_name) const;

  std::shared_ptr<store::Engine> engine_;
};

}  // namespace ebb::files
