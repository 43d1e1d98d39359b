#include "reliability/cpp/script.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

namespace ebb::trials {
namespace {

using Kind = Step::Kind;
using Random = std::mt19937_64;

constexpr std::array<std::string_view, 7> kWords{"opened", "begun", "durable", "lost", "dropping", "closed", "sent"};

// Names as hostile as they are allowed to be.
const std::array<std::string, 3>& names() {
  static const std::array<std::string, 3> kNames{std::string(), std::string("adjoint"), std::string("../a\0/\xff", 7)};
  return kNames;
}

class Writer {
 public:
  Writer(std::uint64_t seed, const ScriptOptions& options) : random_(seed * 2654435761 + 17), options_(options) {
    script_.seed = seed;
    if (options.retention) {
      script_.keep_last = 1 + random_() % 3;
      script_.keep_every = random_() % 2 ? 4 : 0;
    }
  }

  Script run() && {
    for (std::size_t opening = 0; opening < options_.openings; ++opening) {
      add(Kind::open);
      if (opening > 0 && opening % 2 == 0 && !options_.retention) {  // one that only drops; at times all there is
        drop_some(random_() % 2 ? living_.size() : 1 + random_() % 3);
        add(Kind::close);
        add(Kind::open);
      }
      if (opening > 0 && !options_.retention) drop_some(1 + random_() % 3);  // of what an earlier opening left
      if (opening > 0 && random_() % 2) add(Kind::settle);
      for (std::size_t i = 0; i < options_.writes; ++i) write_one();
      if (random_() % 2) add(Kind::settle);
      add(Kind::close);
    }
    return std::move(script_);
  }

 private:
  void add(Kind kind, std::size_t made = 0) { script_.steps.push_back({kind, made}); }

  std::size_t draw_size() {
    static constexpr std::array<std::size_t, 9> kSizes{0, 1, 511, 4096, 4097, 12'345, 65'536, 70'001, 150'000};
    const std::uint64_t lot = random_() % 10;
    return std::min(options_.largest, lot < kSizes.size() ? kSizes[lot] : options_.largest);
  }

  void write_one() {
    const std::string& history = names()[random_() % 4 % 3];
    std::set<std::string> seen;
    Version version = 0;
    unsigned take = 0;
    if (!options_.retention && random_() % 4 == 0 && !living_.empty()) {  // an old one anew
      const std::size_t old = *std::next(living_.begin(), static_cast<std::ptrdiff_t>(random_() % living_.size()));
      drop(old);
      version = script_.made[old].version;
      write(script_.made[old].history, version, script_.made[old].take + 1);
      return;
    }
    version = next_[history]++;
    write(history, version, take);
    if (!options_.retention && random_() % 4 == 0) drop_some(1);
  }

  void write(std::string history, Version version, unsigned take) {
    script_.made.push_back({std::move(history), version, take, draw_size()});
    const std::size_t made = script_.made.size() - 1;
    add(Kind::write, made);
    living_.insert(made);
    waited_.push_back(made);
    const std::uint64_t lot = random_() % 5;
    if (lot < 2) add(Kind::wait, made);
    if (lot == 2) {
      for (const std::size_t one : waited_) {
        if (living_.contains(one)) add(Kind::wait, one);
      }
      waited_.clear();
    }
  }

  void drop_some(std::uint64_t many) {
    while (many-- > 0 && !living_.empty()) {
      drop(*std::next(living_.begin(), static_cast<std::ptrdiff_t>(random_() % living_.size())));
    }
  }

  void drop(std::size_t made) {
    add(Kind::drop, made);
    living_.erase(made);
  }

  Random random_;
  const ScriptOptions options_;
  Script script_;
  std::map<std::string, Version> next_;
  std::set<std::size_t> living_;
  std::vector<std::size_t> waited_;
};

}  // namespace

std::vector<std::string> Script::histories() const { return {names().begin(), names().end()}; }

Bytes Script::contents(const Made& what) const {
  Random random(seed ^ std::hash<std::string>()(what.history) ^ static_cast<std::uint64_t>(what.version) << 20 ^
                std::uint64_t{what.take} << 50);
  Bytes out(what.bytes);
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) {
    const std::uint64_t eight = random();
    std::memcpy(out.data() + at, &eight, 8);
  }
  for (; at < out.size(); ++at) out[at] = static_cast<std::byte>(random());
  return out;
}

Script make_script(std::uint64_t seed, const ScriptOptions& options) { return Writer(seed, options).run(); }

std::string text_of(const Event& event) {
  return std::string(kWords[static_cast<std::size_t>(event.kind)]) + " " + std::to_string(event.made);
}

Event event_of(const std::string& text) {
  const std::size_t space = text.find(' ');
  const auto word = std::ranges::find(kWords, std::string_view(text).substr(0, space));
  if (word == kWords.end() || space == std::string::npos) throw std::logic_error("no event: " + text);
  return {static_cast<Event::Kind>(word - kWords.begin()), std::stoull(text.substr(space + 1))};
}

std::vector<Event> events_of(const std::vector<std::string>& texts) {
  std::vector<Event> out;
  for (const std::string& text : texts) out.push_back(event_of(text));
  return out;
}

}  // namespace ebb::trials
