#include "trace/provision_text.hpp"

#include <algorithm>
#include <array>

#include "trace/words.hpp"

namespace ebb::trace {
namespace {

using namespace planner;

// Of ProvisionEvent::Kind.
constexpr std::array<std::string_view, 11> kKinds{"tick",    "placed",       "produced", "expected",
                                                  "touched", "touch_failed", "refused",  "called",
                                                  "pinned",  "pin_failed",   "pin_busy"};
constexpr Time kLongest = kNever / 64;  // of the times that a provisioner multiplies
constexpr int kMostTouchers = 1024;     // as many pieces are commanded at once

void append_text(std::string& out, std::string_view name, const ProvisionSpec& spec) {
  Line(out, "memory") << name << spec.capacity << static_cast<int>(spec.used_when) << spec.touchers << spec.piece
                      << spec.largest_piece << spec.lead << spec.longest_pin << spec.cooldown << spec.pin_deadline;
}

void append_text(std::string& out, std::string_view name, const ProvisionState& state,
                 const ProvisionCommands& commands) {
  const ByteRange pin = commands.pin.value_or(ByteRange{});
  Line line(out, "o");
  line << name << state.ready << state.limit << commands.take_ticket << pin.offset << pin.length;
  for (const ByteRange& range : commands.touch) line << range.offset << range.length;
}

bool read(Words& words, ProvisionSpec& spec) {
  words >> spec.capacity;
  words.choice(spec.used_when, 3) >> spec.touchers >> spec.piece >> spec.largest_piece >> spec.lead >>
      spec.longest_pin >> spec.cooldown >> spec.pin_deadline;
  return words.good() && words.done() && spec.touchers <= kMostTouchers &&
         std::max({spec.longest_pin, spec.cooldown, spec.pin_deadline}) <= kLongest;
}

bool read(Words& words, ProvisionEvent& event) {
  words >> event.now;
  const auto* const kind = std::ranges::find(kKinds, words.word());
  words >> event.offset >> event.length >> event.took;
  event.kind = static_cast<ProvisionEvent::Kind>(kind - kKinds.begin());
  return words.good() && words.done() && kind != kKinds.end() && event.now <= kNever / 2 && event.took >= 0 &&
         event.took <= kLongest;
}

}  // namespace

void ProvisionLog::add(const std::string& name, const Provisioner& provisioner, const ProvisionEvent& event,
                       const ProvisionCommands& out) {
  const std::lock_guard lock(mutex_);
  if (begun_.insert(name).second) append_text(text_, name, provisioner.spec());
  Line(text_, "p") << name << event.now << kKinds.at(event.kind) << event.offset << event.length << event.took;
  append_text(text_, name, provisioner.state(), out);
}

void ProvisionLog::take(std::string& text) {
  const std::lock_guard lock(mutex_);
  text += text_;
  text_.clear();
}

bool ProvisionReplay::take(std::string_view line, std::string& given) {
  Words words(line);
  const bool begins = words.word() == "memory";
  const std::string name(words.word());
  if (begins) {
    ProvisionSpec spec;
    return read(words, spec) && memories_.try_emplace(name, spec).second;
  }
  const auto memory = memories_.find(name);
  ProvisionEvent event;
  if (memory == memories_.end() || !read(words, event)) return false;
  const ProvisionCommands out = memory->second.on(event);
  append_text(given, name, memory->second.state(), out);
  return true;
}

}  // namespace ebb::trace
