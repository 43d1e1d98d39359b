#include "veloc/ahead.hpp"

#include <algorithm>

namespace ebb::veloc {

Result<Version> Ahead::stored(Store& store, const std::string& name, int version) {
  History history = store.history(name);
  Editions& editions = editions_[name];
  const auto stored = editions.newest_of(history, version);
  if (!stored || history.info(*stored)) return stored;
  editions.forget();  // another rank may have given one up
  return editions.newest_of(history, version);
}

Result<void> Ahead::enqueue(Store& store, const std::string& name, int version, std::optional<Version> later) {
  const auto one = later ? Result<Version>(*later) : stored(store, name, version);
  if (!one) return one.error();
  History history = store.history(name);
  if (auto hinted = history.hint({*one}); !hinted) return hinted;
  const auto [of, first] = enqueued_.try_emplace(name);
  of->second.push_back(version);
  return first && started_ ? history.start_prefetch() : Result<void>();
}

Result<void> Ahead::start(Store& store) {
  started_ = true;
  for (const auto& [name, versions] : enqueued_)
    if (auto started = store.history(name).start_prefetch(); !started) return started;
  return {};
}

void Ahead::read(const std::string& name, int version) {
  const auto enqueued = enqueued_.find(name);
  if (enqueued == enqueued_.end()) return;
  if (const auto one = std::ranges::find(enqueued->second, version); one != enqueued->second.end())
    enqueued->second.erase(one);
}

Result<void> Ahead::begin(Store& store, const std::string& name, int version, Version edition) {
  const auto enqueued = enqueued_.find(name);
  if (enqueued == enqueued_.end() || enqueued->second.empty()) return {};
  std::vector<Version> order;
  for (const int each : enqueued->second) {
    const auto one = each < version ? stored(store, name, each) : Result<Version>(stored_as(edition, each));
    if (!one) return one.error();
    order.push_back(*one);
  }
  return store.history(name).hint(order, true);
}

}  // namespace ebb::veloc
