#pragma once
// The whole store, over the files that a trial gives it.
#include <mutex>

#include "reliability/cpp/subject.hpp"
#include "store/engine.hpp"

namespace ebb::trials {

// Warnings, from any thread.
struct Said {
  std::mutex mutex;
  std::string text;
};

class StoreSubject : public Subject {
 public:
  StoreSubject(std::shared_ptr<store::Engine> engine, bool synced, std::shared_ptr<Said> said)
      : level_(synced ? "storage" : "process"),
        said_(std::move(said)),
        store_(store::Engine::store_over(std::move(engine))) {}

  Result<void> write(const Made& made, const Bytes& contents) override;
  Result<void> wait(const std::string& history, Version version) override {
    return store_.history(history).wait(version, level_);
  }
  Result<void> send(const std::string& history, Version version) override {
    return store_.history(history).wait(version, "shared");
  }
  Result<void> drop(const std::string& history, Version version) override {
    return store_.history(history).drop(version);
  }
  std::vector<Version> versions(const std::string& history) override {
    return store_.history(history).versions().value();
  }
  Result<Bytes> read(const std::string& history, Version version) override;
  Result<std::optional<Version>> latest(const std::string& history) override {
    return store_.history(history).latest();
  }
  Result<void> close() override { return store_.close(); }
  std::string said() override {
    std::lock_guard lock(said_->mutex);
    return said_->text;
  }

 protected:
  Store& store() { return store_; }

 private:
  const std::string level_;
  const std::shared_ptr<Said> said_;
  Store store_;
};

}  // namespace ebb::trials
