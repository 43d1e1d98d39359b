#include "trace/event_text.hpp"

#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/planner.hpp"
#include "trace/provision_text.hpp"
#include "trace/words.hpp"

namespace ebb::trace {
namespace {

using namespace planner;

constexpr std::string_view kFormat = "ebbtide-events ";
constexpr std::string_view kHeader = "ebbtide-events 8";
constexpr HistoryId kMostClients = 1 << 20;  // the planner has a table of them

// How each event is named in a log, and its fields in their order there.
template <class What>
constexpr auto kText = nullptr;
template <class... Fields>
constexpr auto text(std::string_view name, Fields... fields) {
  return std::pair(name, std::tuple(fields...));
}
template <>
constexpr auto kText<event::Tick> = text("tick");
template <>
constexpr auto kText<event::Checkpoint> =
    text("checkpoint", &event::Checkpoint::request, &event::Checkpoint::version, &event::Checkpoint::bytes,
         &event::Checkpoint::timeout, &event::Checkpoint::ordered);
template <>
constexpr auto kText<event::Reserve> = text("reserve", &event::Reserve::request, &event::Reserve::version,
                                            &event::Reserve::bytes, &event::Reserve::timeout);
template <>
constexpr auto kText<event::Adopt> = text("adopt", &event::Adopt::request, &event::Adopt::version, &event::Adopt::bytes,
                                          &event::Adopt::timeout, &event::Adopt::place);
template <>
constexpr auto kText<event::Restore> = text("restore", &event::Restore::request, &event::Restore::version,
                                            &event::Restore::keep, &event::Restore::ordered);
template <>
constexpr auto kText<event::Borrow> =
    text("borrow", &event::Borrow::request, &event::Borrow::version, &event::Borrow::timeout);
template <>
constexpr auto kText<event::Wait> = text("wait", &event::Wait::request, &event::Wait::version, &event::Wait::tier);
template <>
constexpr auto kText<event::WaitAll> = text("wait_all", &event::WaitAll::request, &event::WaitAll::tier);
template <>
constexpr auto kText<event::Submit> =
    text("submit", &event::Submit::request, &event::Submit::keep, &event::Submit::by_stream);
template <>
constexpr auto kText<event::Commit> = text("commit", &event::Commit::request, &event::Commit::in_use);
template <>
constexpr auto kText<event::Abandon> = text("abandon", &event::Abandon::request);
template <>
constexpr auto kText<event::Release> = text("release", &event::Release::request, &event::Release::keep);
template <>
constexpr auto kText<event::Cancel> = text("cancel", &event::Cancel::request);
template <>
constexpr auto kText<event::Ready> = text("ready", &event::Ready::request);
template <>
constexpr auto kText<event::Hint> = text("hint", &event::Hint::replace, &event::Hint::versions);
template <>
constexpr auto kText<event::HintFront> = text("hint_front", &event::HintFront::version);
template <>
constexpr auto kText<event::Unhint> = text("unhint", &event::Unhint::versions);
template <>
constexpr auto kText<event::UnhintAll> = text("unhint_all");
template <>
constexpr auto kText<event::StartPrefetch> = text("start_prefetch");
template <>
constexpr auto kText<event::Order> = text("order", &event::Order::reverse);
template <>
constexpr auto kText<event::Agreed> = text("agreed", &event::Agreed::version);
template <>
constexpr auto kText<event::Goes> = text("goes", &event::Goes::version);
template <>
constexpr auto kText<event::Drop> = text("drop", &event::Drop::version);
template <>
constexpr auto kText<event::DropAll> = text("drop_all");
template <>
constexpr auto kText<event::Forget> = text("forget");
template <>
constexpr auto kText<event::Recovered> =
    text("recovered", &event::Recovered::version, &event::Recovered::bytes, &event::Recovered::tier);
template <>
constexpr auto kText<event::Durable> = text("durable", &event::Durable::version, &event::Durable::tier);
template <>
constexpr auto kText<event::NotDurable> = text("not_durable", &event::NotDurable::version, &event::NotDurable::tier);
template <>
constexpr auto kText<event::Unreleased> = text("unreleased", &event::Unreleased::bytes, &event::Unreleased::tier);
template <>
constexpr auto kText<event::Carried> = text("carried", &event::Carried::command);
template <>
constexpr auto kText<event::Finished> = text("finished", &event::Finished::command);
template <>
constexpr auto kText<event::Failed> = text("failed", &event::Failed::command, &event::Failed::cause);
template <>
constexpr auto kText<event::Lend> = text("lend", &event::Lend::tier, &event::Lend::segment, &event::Lend::bytes,
                                         &event::Lend::lender, &event::Lend::relays);
template <>
constexpr auto kText<event::Limit> = text("limit", &event::Limit::lender, &event::Limit::share);
template <>
constexpr auto kText<event::Recall> =
    text("recall", &event::Recall::tier, &event::Recall::segment, &event::Recall::bytes, &event::Recall::deadline);
template <>
constexpr auto kText<event::Lost> = text("lost", &event::Lost::tier, &event::Lost::segment);

Error bad(std::size_t number, std::string_view line) {
  return {Errc::invalid_argument,
          "event log, line " + std::to_string(number) + " is not valid: \"" + std::string(line) + "\""};
}

// One line of the machine's description; true once the machine is complete.
Result<bool> read_machine(Machine& machine, std::string_view line, std::size_t number) {
  Words words(line);
  const std::string_view tag = words.word();
  bool complete = false;
  const auto node = [&](int index) { return index >= 0 && index < static_cast<int>(machine.nodes.size()); };
  if (tag == "node") {
    NodeSpec spec;
    spec.name = words.word();
    words >> spec.staging;
    machine.nodes.push_back(std::move(spec));
  } else if (tag == "tier") {
    TierSpec tier;
    tier.name = words.word();
    words.choice(tier.medium, 3) >> tier.capacity >> tier.granule >> tier.node;
    if (!words.done()) {
      bool own = false;
      Retention retention;
      words >> tier.every >> own >> retention.keep_last >> retention.keep_every;
      if (own) tier.retention = retention;
      if (!words.done()) words >> tier.adopted;
      if (!words.done()) words >> tier.grain;
    }
    const bool divides = tier.grain == 0 || (tier.medium != Medium::file && tier.granule % tier.grain == 0);
    if (tier.granule == 0 || !divides || !node(tier.node)) return bad(number, line);
    machine.tiers.push_back(std::move(tier));
  } else if (tag == "resource") {
    ResourceSpec resource;
    resource.name = words.word();
    words >> resource.urgent_first;
    machine.resources.push_back(std::move(resource));
  } else if (tag == "link") {
    LinkSpec link;
    link.name = words.word();
    words >> link.from >> link.to >> link.bytes_per_s >> link.latency >> link.chunk >> link.depth >> link.window;
    while (words.good() && !words.done()) words >> link.resources.emplace_back();
    for (const int resource : link.resources)
      if (resource < 0 || resource >= static_cast<int>(machine.resources.size())) return bad(number, line);
    if (!node(link.from) || !node(link.to)) return bad(number, line);
    machine.links.push_back(std::move(link));
  } else if (tag == "limit") {
    std::size_t link = 0;
    words >> link;
    if (link >= machine.links.size()) return bad(number, line);
    words >> machine.links[link].most_bytes_per_s;
  } else if (tag == "machine") {
    words >> machine.ring_slot;
    words.choice(machine.eviction, 4) >> machine.ephemeral >> machine.manual_prefetch >> machine.max_retries >>
        machine.retention.keep_last >> machine.retention.keep_every;
    if (!words.done()) words >> machine.releases_later;
    if (!words.done()) words >> machine.retention.agreed;
    complete = true;
  } else {
    return bad(number, line);
  }
  if (!words.good() || !words.done()) return bad(number, line);
  return complete;
}

// Reads the fields of the event that `name` names into `what`; false: there is none of that name.
template <std::size_t Index = 0>
bool read_fields(std::string_view name, Words& words, event::Any& what) {
  if constexpr (Index == std::variant_size_v<event::Any>) {
    return false;
  } else {
    using What = std::variant_alternative_t<Index, event::Any>;
    if (name != kText<What>.first) return read_fields<Index + 1>(name, words, what);
    auto& read = what.emplace<What>();
    std::apply([&](auto... field) { (void(words >> read.*field), ...); }, kText<What>.second);
    return true;
  }
}

}  // namespace

std::string_view name_of(const Event& event) {
  return std::visit([]<class What>(const What&) { return kText<What>.first; }, event.what);
}

void append_text(std::string& out, const Machine& machine) {
  (out += kHeader) += '\n';
  for (const NodeSpec& node : machine.nodes) Line(out, "node") << node.name << node.staging;
  for (const TierSpec& tier : machine.tiers) {
    Line line(out, "tier");
    line << tier.name << static_cast<int>(tier.medium) << tier.capacity << tier.granule << int{tier.node};
    if (!tier.retention && tier.every == 0 && tier.adopted == 0 && tier.grain == 0) continue;
    const Retention retention = tier.retention.value_or(Retention{});
    line << tier.every << tier.retention.has_value() << retention.keep_last << retention.keep_every;
    if (tier.adopted > 0 || tier.grain > 0) line << tier.adopted;
    if (tier.grain > 0) line << tier.grain;
  }
  for (const ResourceSpec& resource : machine.resources)
    Line(out, "resource") << resource.name << resource.urgent_first;
  for (const LinkSpec& link : machine.links) {
    Line line(out, "link");
    line << link.name << int{link.from} << int{link.to} << link.bytes_per_s << link.latency << link.chunk << link.depth
         << link.window;
    for (const int resource : link.resources) line << resource;
  }
  for (std::size_t l = 0; l < machine.links.size(); ++l)
    if (machine.links[l].most_bytes_per_s > 0) Line(out, "limit") << l << machine.links[l].most_bytes_per_s;
  Line line(out, "machine");
  line << machine.ring_slot << static_cast<int>(machine.eviction) << machine.ephemeral << machine.manual_prefetch
       << machine.max_retries << machine.retention.keep_last << machine.retention.keep_every;
  if (machine.releases_later || machine.retention.agreed) line << machine.releases_later;
  if (machine.retention.agreed) line << true;
}

void append_text(std::string& out, const Event& event) {
  Line line(out, "e");
  line << event.now << name_of(event) << event.client;
  std::visit(
      [&]<class What>(const What& what) {
        std::apply([&](auto... field) { (void(line << what.*field), ...); }, kText<What>.second);
      },
      event.what);
}

void append_text(std::string& out, const Command& command) {
  Line(out, "c") << command.id << command.link << command.checkpoint.slot << command.checkpoint.generation
                 << command.request << command.offset << command.length << command.total << command.from << command.to
                 << command.after;
}

void append_text(std::string& out, const Output& output) {
  for (const Command& command : output.commands) append_text(out, command);
  for (const Returned& one : output.returned) Line(out, "b") << int{one.tier} << one.segment;
  for (const Retired& one : output.retired) Line(out, "r") << one.history << one.version;
  if (output.commit) Line(out, "s") << output.commit;
}

Result<Event> parse_event(std::string_view line) {
  Words words(line);
  Event event;
  if (words.word() != "e") return bad(0, line);
  words >> event.now;
  const std::string_view name = words.word();
  words >> event.client;
  if (!read_fields(name, words, event.what) || !words.good() || !words.done() || event.client >= kMostClients)
    return bad(0, line);
  return event;
}

Result<Replay> replay(std::string_view log) {
  std::size_t number = 1;
  if (std::string_view first = next_line(log); first != kHeader) {
    if (!first.starts_with(kFormat)) return bad(number, first);
    return Error{Errc::invalid_argument, "event log: it has format \"" + std::string(first) +
                                             "\", and this version of Ebbtide reads \"" + std::string(kHeader) +
                                             "\" alone: replay it with the version that wrote it"};
  }
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
    ProvisionReplay memories;
    Output output;
    std::string text;
    std::string_view given;  // the rest of the last event's output, not compared with the log yet
    while (!log.empty()) {
      const std::string_view line = next_line(log);
      ++number;
      if (line.starts_with("c ") || line.starts_with("b ") || line.starts_with("r ") || line.starts_with("o ") ||
          line.starts_with("s ")) {
        const std::string_view expected = next_line(given);
        if (expected != line) return differs(line, expected);
        ++result.commands;
        continue;
      }
      if (!given.empty()) return differs(line, next_line(given));
      text.clear();
      if (ProvisionReplay::takes(line)) {
        if (!memories.take(line, text)) return bad(number, line);
        given = text;
        result.events += !given.empty();
        continue;
      }
      auto event = parse_event(line);
      if (!event) return bad(number, line);
      output.clear();
      planner.on(*event, output);
      append_text(text, output);
      given = text;
      ++result.events;
    }
    if (!given.empty()) return differs("", next_line(given));
  } catch (const std::logic_error& broken) {
    // A log that no store wrote can break the planner's contract; that is the log's error, not ours.
    return Error{Errc::invalid_argument, "event log, line " + std::to_string(number) + ": " + broken.what()};
  }
  return result;
}

}  // namespace ebb::trace
