#pragma once
// What a program will read: as which version of the store, and in which order it has said so.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/store.hpp"
#include "veloc/editions.hpp"

namespace ebb::veloc {

/// Thread safety: none.
class Ahead {
 public:
  /// As which version of the store this rank has one, or would have it.
  Result<Version> stored(Store& store, const std::string& name, int version);
  void written(const std::string& name, Version stored) { editions_[name].written(stored); }
  void given_up(const std::string& name) { editions_[name].forget(); }
  void dropped(const std::string& name) { editions_.erase(name); }

  /// The version will be read after those enqueued before it. `later`: as which of the store it will be written.
  Result<void> enqueue(Store& store, const std::string& name, int version, std::optional<Version> later);
  /// What is enqueued is fetched, also under a name that comes later.
  Result<void> start(Store& store);
  void read(const std::string& name, int version);
  /// The program writes again from `version` on: what is enqueued, and not written yet, is of that edition.
  Result<void> begin(Store& store, const std::string& name, int version, Version edition);

 private:
  std::map<std::string, Editions> editions_;
  std::map<std::string, std::vector<int>> enqueued_;  // by name
  bool started_ = false;
};

}  // namespace ebb::veloc
