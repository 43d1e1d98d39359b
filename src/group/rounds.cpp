#include "group/rounds.hpp"

#include <limits>
#include <utility>

namespace ebb::group {

Result<bool> Rounds::test(bool wait) {
  auto done = collective_->test(wait);
  if (!done) lost_ = true, break_off(done.error());
  return done;
}

Result<void> Rounds::begin() {
  if (lost_) return *broken_;
  if (!under_way_.empty()) return {};
  under_way_ = agreement.offer();
  auto begun = collective_->begin_least(under_way_);
  if (!begun) lost_ = true, break_off(begun.error());
  return begun;
}

Result<std::optional<Agreement::Outcome>> Rounds::look() {
  if (lost_) return *broken_;
  if (under_way_.empty()) return std::optional<Agreement::Outcome>();
  const auto done = test(false);
  if (!done) return done.error();
  if (!*done) return std::optional<Agreement::Outcome>();
  return std::optional(agreement.take(std::exchange(under_way_, {})));
}

Result<Agreement::Outcome> Rounds::end() {
  if (lost_) return *broken_;
  if (const auto done = test(true); !done) return done.error();
  return agreement.take(std::exchange(under_way_, {}));
}

Result<std::vector<std::int64_t>> Rounds::least(std::vector<std::int64_t> values) {
  if (lost_) return *broken_;
  if (auto begun = collective_->begin_least(values); !begun) {
    lost_ = true;
    break_off(begun.error());
    return begun.error();
  }
  if (const auto done = test(true); !done) return done.error();
  return values;
}

Result<void> Rounds::all(const Result<void>& mine, const std::string& what) {
  constexpr std::int64_t kFine = std::numeric_limits<std::int64_t>::max(), kCodes = 1024;
  const auto own = mine ? kFine : rank() * kCodes + static_cast<std::int64_t>(mine.error().code);
  const auto found = least({own});
  if (!mine) return mine;
  if (!found) return found.error();
  if ((*found)[0] == kFine) return {};
  const auto code = static_cast<Errc>((*found)[0] % kCodes);
  return Error{code, what + " failed in rank " + std::to_string((*found)[0] / kCodes) + " of " +
                         std::to_string(count()) + " (" + std::string(name_of(code)) + "): its own error says why"};
}

}  // namespace ebb::group
