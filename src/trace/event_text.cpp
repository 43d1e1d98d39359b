#include "trace/event_text.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "planner/planner.hpp"

namespace ebb::runtime {
namespace {

using namespace policy;

constexpr std::string_view kHeader = "ebbtide-events 3";
constexpr std::array<std::string_view, 24> kKinds = {
    "checkpoint", "reserve",    "submit",  "commit",         "abandon", "restore", "borrow", "release",
    "hint",       "hint_front", "unhint",  "start_prefetch", "drop",    "adopt",   "forget", "wait",
    "cancel",     "ready",      "carried", "finished",       "failed",  "durable", "shrink", "tick"};
static_assert(static_cast<std::size_t>(EventKind::tick) + 1 == kKinds.size());

class Line {
 public:
  Line(std::string& out, std::string_view tag) : out_(out) { out_ += tag; }
  ~Line() { out_ += '\n'; }
  Line& operator<<(std::string_view text) { return (out_ += ' ') += text, *this; }
  Line& operator<<(double value) {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%a", value);
    return *this << std::string_view(text.data());
  }
  template <class Integer>
    requires std::is_integral_v<Integer>
  Line& operator<<(Integer value) {
    std::array<char, 24> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), static_cast<long long>(value)).ptr;
    return *this << std::string_view(text.data(), static_cast<std::size_t>(end - text.data()));
  }
  Line& operator<<(const Place& place) {
    return *this << static_cast<int>(place.at.kind) << int{place.at.index} << place.offset;
  }

 private:
  std::string& out_;
};

// Reads a line's words one after another; the first that is missing or wrong makes it bad for good.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  bool good() const { return good_; }
  bool done() const { return rest_.find_first_not_of(' ') == rest_.npos; }

  std::string_view word() {
    const auto begin = rest_.find_first_not_of(' ');
    if (begin == rest_.npos) return good_ = false, std::string_view{};
    const auto end = std::min(rest_.find(' ', begin), rest_.size());
    const std::string_view text = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return text;
  }
  template <class Integer>
  Words& operator>>(Integer& value) {
    const std::string_view text = word();
    long long parsed = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    value = static_cast<Integer>(parsed);
    if (failed != std::errc{} || end != text.data() + text.size()) good_ = false;
    return *this;
  }
  Words& operator>>(bool& value) {
    int number = 0;
    *this >> number;
    if (number != 0 && number != 1) good_ = false;
    value = number == 1;
    return *this;
  }
  Words& operator>>(double& value) {
    const std::string text(word());
    try {
      std::size_t used = 0;
      value = std::stod(text, &used);
      if (used != text.size()) good_ = false;
    } catch (const std::exception&) {
      good_ = false;
    }
    return *this;
  }
  template <class Enum>
  Words& choice(Enum& value, int count) {
    int number = -1;
    *this >> number;
    if (number < 0 || number >= count) good_ = false;
    value = static_cast<Enum>(number);
    return *this;
  }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::string_view next_line(std::string_view& text) {
  const auto end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

Error bad(std::size_t number, std::string_view line) {
  return {Errc::invalid_argument,
          "event log, line " + std::to_string(number) + " is not valid: \"" + std::string(line) + "\""};
}

// One line of the machine's description; true once the machine is complete.
Result<bool> read_machine(Machine& machine, std::string_view line, std::size_t number) {
  Words words(line);
  const std::string_view tag = words.word();
  bool complete = false;
  if (tag == "tier") {
    TierSpec tier;
    tier.name = words.word();
    words.choice(tier.medium, 3) >> tier.capacity >> tier.granule;
    if (tier.granule == 0) return bad(number, line);
    machine.tiers.push_back(std::move(tier));
  } else if (tag == "link") {
    LinkSpec link;
    link.name = words.word();
    words >> link.bytes_per_s >> link.latency >> link.chunk >> link.depth >> link.window >> link.group;
    machine.links.push_back(std::move(link));
  } else if (tag == "machine") {
    words >> machine.ring_slot >> machine.ring_slots;
    words.choice(machine.eviction, 4) >> machine.ephemeral >> machine.manual_prefetch >> machine.max_retries >>
        machine.retention.keep_last >> machine.retention.keep_every;
    complete = true;
  } else {
    return bad(number, line);
  }
  if (!words.good() || !words.done()) return bad(number, line);
  return complete;
}

}  // namespace

std::string_view name_of(policy::EventKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

void append_text(std::string& out, const Machine& machine) {
  (out += kHeader) += '\n';
  for (const TierSpec& tier : machine.tiers) {
    Line(out, "tier") << tier.name << static_cast<int>(tier.medium) << tier.capacity << tier.granule;
  }
  for (const LinkSpec& link : machine.links) {
    Line(out, "link") << link.name << link.bytes_per_s << link.latency << link.chunk << link.depth << link.window
                      << link.group;
  }
  Line(out, "machine") << machine.ring_slot << machine.ring_slots << static_cast<int>(machine.eviction)
                       << machine.ephemeral << machine.manual_prefetch << machine.max_retries
                       << machine.retention.keep_last << machine.retention.keep_every;
}

void append_text(std::string& out, const Event& event) {
  Line line(out, "e");
  line << event.now << name_of(event.kind) << event.history << event.version << event.request << event.command
       << event.bytes << event.timeout << int{event.tier} << event.flag << event.ordered << event.hopeless;
  for (const Version version : event.versions) line << version;
}

void append_text(std::string& out, const Command& command) {
  Line(out, "c") << command.id << command.link << command.checkpoint.slot << command.checkpoint.generation
                 << command.request << command.offset << command.length << command.total << command.from << command.to
                 << command.after;
}

void append_text(std::string& out, const Output& output) {
  for (const Command& command : output.commands) append_text(out, command);
  for (const Retired& one : output.retired) Line(out, "r") << one.history << one.version;
  if (output.commit) out += "s\n";
}

Result<Event> parse_event(std::string_view line) {
  Words words(line);
  Event event;
  if (words.word() != "e") return bad(0, line);
  words >> event.now;
  const std::string_view kind = words.word();
  std::size_t index = 0;
  while (index < kKinds.size() && kKinds[index] != kind) ++index;
  if (index == kKinds.size()) return bad(0, line);
  event.kind = static_cast<EventKind>(index);
  int tier = kNoTier;
  words >> event.history >> event.version >> event.request >> event.command >> event.bytes >> event.timeout >> tier >>
      event.flag >> event.ordered >> event.hopeless;
  event.tier = static_cast<TierIndex>(tier);
  while (words.good() && !words.done()) words >> event.versions.emplace_back();
  if (!words.good()) return bad(0, line);
  return event;
}

Result<Replay> replay(std::string_view log) {
  std::size_t number = 1;
  if (std::string_view first = next_line(log); first != kHeader) return bad(number, first);
  Machine machine;
  for (bool complete = false; !complete;) {
    const std::string_view line = next_line(log);
    auto read = read_machine(machine, line, ++number);
    if (!read) return read.error();
    complete = *read;
  }
  Replay result;
  const auto differs = [&](std::string_view recorded, std::string_view given) {
    result.difference = "line " + std::to_string(number) + ": recorded \"" + std::string(recorded) + "\", replayed \"" +
                        std::string(given) + "\"";
    return result;
  };
  try {
    Planner planner(machine);
    Output output;
    std::string text;
    std::string_view given;  // of the last event's output, what the log has yet to name
    while (!log.empty()) {
      const std::string_view line = next_line(log);
      ++number;
      if (line.starts_with("c ") || line.starts_with("r ") || line == "s") {
        const std::string_view expected = next_line(given);
        if (expected != line) return differs(line, expected);
        ++result.commands;
        continue;
      }
      if (!given.empty()) return differs(line, next_line(given));
      auto event = parse_event(line);
      if (!event) return bad(number, line);
      output.clear();
      text.clear();
      planner.on(*event, output);
      append_text(text, output);
      given = text;
      ++result.events;
    }
    if (!given.empty()) return differs("", next_line(given));
  } catch (const std::logic_error& broken) {
    // A log that no runtime wrote can break the planner's contract; that is its error, not ours.
    return Error{Errc::invalid_argument, "event log, line " + std::to_string(number) + ": " + broken.what()};
  }
  return result;
}

}  // namespace ebb::runtime
