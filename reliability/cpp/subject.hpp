#pragma once
// The store that is tried: the whole one, or its storage alone.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/store.hpp"
#include "os/files.hpp"
#include "reliability/cpp/script.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::trials {

enum class Layer : std::uint8_t {
  storage,    // storage::PersistentStorage: segments of 512 KiB, so that there are many
  store,      // ebb::Store over it, with caches of 1 MiB
  snapshots,  // the same; its own history has snapshots
};

struct SubjectOptions {
  Layer layer = Layer::store;
  std::filesystem::path directory = "/store";
  bool readonly = false;
  bool synced = true;  // durability "storage", or "process"
  bool direct = true;
  bool ring = false;  // the file engine that is chosen by itself; or threads
  std::uint64_t capacity = 12 << 20;
  std::uint64_t keep_last = 0, keep_every = 0;  // of a whole store
  std::filesystem::path shared = {};            // of a whole store: the directory below; empty: none
  bool waits_below = true;                      // closing waits for it
};

/// An open store, one call after another. What it says is by name: every failure is an Error.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Result<void> write(const Made& made, const Bytes& contents) = 0;
  /// Until it is durable, or never will be.
  virtual Result<void> wait(const std::string& history, Version version) = 0;
  /// The same for the shared directory.
  virtual Result<void> send(const std::string& history, Version version) { return wait(history, version); }
  virtual Result<void> drop(const std::string& history, Version version) = 0;
  /// What was dropped is, by now, carried out on the disk as far as it ever will be. Best done.
  Result<void> settle() {
    // Batches end one after another: the second is over when the first one's drops are.
    for (int i = 0; i < 2; ++i) {
      const Made nothing{"settle", settled_++, 0, 0};
      static_cast<void>(drop(nothing.history, nothing.version));  // of an earlier opening
      if (auto written = write(nothing, {}); !written) return written;
      static_cast<void>(wait(nothing.history, nothing.version));
      static_cast<void>(drop(nothing.history, nothing.version));
    }
    return {};
  }
  virtual std::vector<Version> versions(const std::string& history) = 0;
  virtual Result<Bytes> read(const std::string& history, Version version) = 0;
  virtual Result<std::optional<Version>> latest(const std::string& history) = 0;
  virtual Result<void> close() = 0;
  /// What it warned of, for messages.
  virtual std::string said() { return {}; }

 private:
  Version settled_ = 0;
};

/// Told of each checkpoint as soon as the store says by itself that it is durable, or never will be (storage only).
using Told = std::function<void(const Made&, const Result<void>&)>;
Result<std::unique_ptr<Subject>> open_subject(std::shared_ptr<os::Files> files, const SubjectOptions& options,
                                              Told told = {});
Result<std::unique_ptr<Subject>> open_storage_subject(std::shared_ptr<os::Files> files, const SubjectOptions& options,
                                                      Told told);
Result<std::unique_ptr<Subject>> open_store_subject(std::shared_ptr<os::Files> files, const SubjectOptions& options);

std::string_view name_of(Layer layer);

/// Two regions of what is longer than a page.
std::vector<std::size_t> regions_of(std::size_t bytes);

}  // namespace ebb::trials
