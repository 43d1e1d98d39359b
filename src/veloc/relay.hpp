#pragma once
// Where the ranks of a node and its veloc-backend meet: which ranks have left something, and whose turn it is.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"
#include "ebbtide/units.hpp"

namespace ebb::veloc {

/// A version that goes to `persistent`.
struct Due {
  std::string name;
  Version version = 0;
};

/// A folder beside the local store of a node's ranks. Its file `lock` has three bytes, which processes lock, so that
/// the kernel lets go of what a killed one held: the backend has the first while it runs; ranks have the second
/// together while they run, and the backend alone while it sends. A file `rank-N` says that rank N's store may have
/// what `persistent` lacks and which versions go there: one a line.
///
/// Thread safety: none; one object in a process, since closing a file ends all of the process's locks of it. A forked
/// child has none of them.
class Relay {
 public:
  /// Makes the folder, if its parent is there. Error io_error, naming it.
  static Result<Relay> open(const std::filesystem::path& folder);
  Relay(Relay&& other) noexcept : folder_(std::move(other.folder_)), lock_(std::exchange(other.lock_, -1)) {}
  Relay& operator=(Relay&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(lock_, other.lock_);
    return *this;
  }
  ~Relay();

  // Of a rank.
  /// Keeps the backend from sending. While it sends what earlier jobs left, waits for that, no longer than `limit`.
  /// Error in_use: it sends still, and its process.
  Result<void> enter(int rank, Seconds limit) const;
  /// Those who have entered belong to jobs of so many ranks. Error invalid_argument: an earlier one had another number.
  Result<void> check_count(int ranks) const;
  /// One of the versions that a rank, which has entered, leaves is to go to `persistent`. A kill forgets none for which
  /// this has returned.
  Result<void> ask(int rank, const Due& due) const;
  /// Whether a backend runs for this folder.
  bool has_backend() const;

  // Of the backend.
  /// Makes this process the backend. Error in_use: there is one, and its process.
  Result<void> serve() const;
  /// Waits until no rank runs, and keeps them from starting. Not `wait`: error in_use, if one runs.
  Result<void> await_ranks(bool wait = true) const;
  /// Those that left something.
  std::vector<int> ranks() const;
  /// What a rank has asked for since it was forgotten last.
  Result<std::vector<Due>> due(int rank) const;
  /// All of a rank's is in `persistent`.
  Result<void> forget(int rank) const;
  void let_ranks_start() const;

 private:
  Relay(std::filesystem::path folder, int lock) : folder_(std::move(folder)), lock_(lock) {}
  Result<void> take(short kind, int byte, bool wait) const;
  std::filesystem::path note_of(int rank) const { return folder_ / ("rank-" + std::to_string(rank)); }

  std::filesystem::path folder_;
  int lock_ = -1;
};

}  // namespace ebb::veloc
