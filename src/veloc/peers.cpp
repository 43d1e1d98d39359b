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
  return least(leads() ? mine : std::numeric_limits<std::int64_t>::max());
}

Result<std::int64_t> Peers::least(std::int64_t mine) {
  const auto begun = collective_->begin_least(std::span(&mine, 1));
  const auto ended = begun ? collective_->test(true) : Result<bool>(begun.error());
  return ended ? Result(mine) : ended.error();
}

Result<void> Peers::all(const Result<void>& mine, const std::string& what) {
  constexpr auto kNobody = std::numeric_limits<std::int64_t>::max();
  const auto failed = least(mine ? kNobody : rank());
  if (!mine) return mine;
  if (!failed) return failed.error();
  if (*failed == kNobody) return {};
  return Error{Errc::dropped, what + " failed on rank " + std::to_string(*failed) + ", which says why"};
}

}  // namespace ebb::veloc
