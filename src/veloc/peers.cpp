#include "veloc/peers.hpp"

#include <limits>
#include <span>

namespace ebb::veloc {

std::unique_ptr<Collective> alone(int id) {
  class Alone final : public Collective {
   public:
    explicit Alone(int id) : id_(id) {}
    int rank() const override { return id_; }
    int count() const override { return 1; }
    Result<void> begin_least(std::span<std::int64_t>) override { return {}; }
    Result<bool> test(bool) override { return true; }

   private:
    int id_;
  };
  return std::make_unique<Alone>(id);
}

Result<std::int64_t> Peers::first(std::int64_t mine) {
  std::int64_t value = rank() == 0 || collective_->count() == 1 ? mine : std::numeric_limits<std::int64_t>::max();
  if (auto begun = collective_->begin_least(std::span(&value, 1)); !begun) return begun.error();
  if (auto ended = collective_->test(true); !ended) return ended.error();
  return value;
}

Result<void> Peers::all(const Result<void>& mine, const std::string& what) {
  constexpr auto kNobody = std::numeric_limits<std::int64_t>::max();
  std::int64_t failed = mine ? kNobody : rank();
  const auto begun = collective_->begin_least(std::span(&failed, 1));
  const auto ended = begun ? collective_->test(true) : Result<bool>(begun.error());
  if (!mine) return mine;
  if (!ended) return ended.error();
  if (failed == kNobody) return {};
  return Error{Errc::dropped, what + " failed on rank " + std::to_string(failed) + ", which says why"};
}

}  // namespace ebb::veloc
