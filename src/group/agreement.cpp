#include "ebbtide/agreement.hpp"

#include <algorithm>
#include <limits>

namespace ebb {

namespace {
constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max();
}  // namespace

std::size_t Agreement::add_history() {
  histories_.emplace_back();
  return histories_.size() - 1;
}

void Agreement::written(std::size_t history, Version version) {
  group::Known& of = histories_[history];
  of.last = version;
  of.voided.erase(of.voided.begin(), of.voided.upper_bound(version));
}

void Agreement::durable(std::size_t history, Version version) {
  group::Known& of = histories_[history];
  of.durable = std::max(of.durable, version);
}

void Agreement::failed(std::size_t history, Version version) {
  group::Known& of = histories_[history];
  of.last = std::max(of.last, version);
  if (of.voided.erase(version) == 0) of.ailing.insert(version);
}

void Agreement::restart(std::size_t history, Version from) {
  histories_[history] = {.ailing = {}, .voided = {}, .last = from, .durable = from, .agreed = from};
}

bool Agreement::is_void(std::size_t history, Version version) const {
  return histories_[history].voided.contains(version);
}

std::vector<std::int64_t> Agreement::offer() const {
  std::vector<std::int64_t> values{arrived_};
  for (const group::Known& of : histories_) {
    const Version ailing = of.ailing.empty() ? kNothing : *of.ailing.begin();
    values.push_back(std::min(of.durable, ailing - 1));
    values.push_back(ailing);
  }
  return values;
}

Agreement::Outcome Agreement::take(std::span<const std::int64_t> minima) {
  Outcome outcome;
  least_arrived_ = minima[0];
  for (std::size_t i = 0; i < histories_.size(); ++i) {
    group::Known& of = histories_[i];
    const Version agreed = minima[1 + 2 * i], voided = minima[2 + 2 * i];
    if (voided != kNothing) {
      of.ailing.erase(voided);
      if (voided > of.last) of.voided.insert(voided);
      outcome.voided.push_back({i, voided});
    }
    if (agreed > of.agreed) outcome.agreed.push_back({i, of.agreed = agreed});
  }
  return outcome;
}

}  // namespace ebb
