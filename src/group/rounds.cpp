#include "group/rounds.hpp"

#include <limits>
#include <utility>

namespace ebb::group {

Result<void> Rounds::begin() {
  if (!under_way_.empty()) return {};
  under_way_ = agreement.offer();
  return collective_->begin_least(under_way_);
}

Result<std::optional<Agreement::Outcome>> Rounds::look() {
  if (under_way_.empty()) return std::optional<Agreement::Outcome>();
  const auto done = collective_->test(false);
  if (!done) return done.error();
  if (!*done) return std::optional<Agreement::Outcome>();
  return std::optional(agreement.take(std::exchange(under_way_, {})));
}

Result<Agreement::Outcome> Rounds::end() {
  if (const auto done = collective_->test(true); !done) return done.error();
  return agreement.take(std::exchange(under_way_, {}));
}

Result<std::vector<std::int64_t>> Rounds::least(std::vector<std::int64_t> values) {
  if (auto begun = collective_->begin_least(values); !begun) return begun.error();
  if (const auto done = collective_->test(true); !done) return done.error();
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
