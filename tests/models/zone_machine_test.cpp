// The memory-zone hardware in virtual time: what follows from its rates exactly, and how the modes compare.
#include "models/zone_machine.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include "sim/random.hpp"

namespace ebb::models {
namespace {

constexpr Bytes kMemory = Bytes{1} << 30;
constexpr Time kCoarseTakes = 16'384;  // 64 KiB at 4 GB/s
constexpr Time kSlow = 26'426;         // and with 62% of that

ZoneHardware plain_link() {
  ZoneHardware hardware;
  hardware.link_half = 0;
  return hardware;
}

ZoneHardware of_memory(Bytes memory) {
  ZoneHardware hardware;
  hardware.buffer = memory / 128;
  return hardware;
}

ZoneRun run(const ZoneHardware& hardware, const std::string& mode, const ZoneProgram& program) {
  return run_zones(hardware, zone_mode(mode).value(), program);
}

std::uint32_t page_of(std::uint32_t zone) { return zone * 16; }

// Writes the first zones before the cut.
ZoneProgram dirty_zones(std::uint32_t zones, std::vector<ZoneWrite> after = {}) {
  ZoneProgram program{.memory = kMemory, .before = {}, .after = std::move(after)};
  for (std::uint32_t zone = 0; zone < zones; ++zone) program.before.push_back(page_of(zone));
  return program;
}

TEST(ZoneTable, takes_one_or_two_bits_a_zone) {
  const ZoneTable table(static_cast<planner::ZoneIndex>((Bytes{32} << 30) / kZoneBlock), 32, 2048);
  EXPECT_EQ(table.bytes(1), 65'536);
  EXPECT_EQ(table.bytes(2), 131'072);
}

TEST(ZoneTable, reads_a_sector_for_256_zones_of_a_channel_in_one_plane) {
  ZoneTable table(1024, 2, 64);  // two sectors in a plane of each channel, and room for two sectors of both planes
  for (planner::ZoneIndex zone = 0; zone < 512; zone += 2) EXPECT_FALSE(table.check_owed(zone));
  EXPECT_EQ(table.traffic().misses, 1);
  EXPECT_EQ(table.traffic().hits, 255);
  EXPECT_TRUE(table.mark_written(0));
  EXPECT_FALSE(table.mark_written(0));
  EXPECT_EQ(table.traffic().misses, 2);  // the other plane
  table.check_owed(512);
  EXPECT_EQ(table.traffic().written_back, 0);
  table.mark_written(512);
  EXPECT_EQ(table.traffic().written_back, 1);  // what is cached was changed
}

TEST(ZoneMode, has_the_names_of_the_paper) {
  for (const char* name : {"F", "I", "I-FG", "NB+I", "NB+F+H", "NB+I+H", "NB+I-FG+H", "NB+F+H+D", "NB+I-FG+H+D", "F+D"})
    EXPECT_TRUE(zone_mode(name)) << name;
  for (const char* name : {"", "NB", "H", "I+H", "NB+F+I", "NB+I+D+H", "NB+I+", "nb+i", "NB+FG"})
    EXPECT_FALSE(zone_mode(name)) << name;
  const ZoneMode mode = zone_mode("NB+I-FG+H+D").value();
  EXPECT_TRUE(mode.nonblocking && mode.incremental && mode.fine && mode.hints && mode.device);
}

TEST(ZoneMachine, takes_eight_seconds_for_a_full_copy_of_32_gb) {
  const ZoneRun full = run(plain_link(), "F", {.memory = 32'000'000'000, .before = {}, .after = {}});
  EXPECT_EQ(full.lost, 8'000'000'000);
  EXPECT_EQ(full.stored, 8'000'000'000);
  EXPECT_EQ(full.written, 32'000'000'000);
}

TEST(ZoneMachine, lets_writes_go_on_that_touch_nothing_owed) {
  std::vector<ZoneWrite> others;
  for (std::uint32_t i = 0; i < 4000; ++i) others.push_back({i * 1000, page_of(8000 + i)});
  for (const char* mode : {"NB+I", "NB+I+H", "NB+I-FG+H", "NB+I+H+D", "NB+I-FG+H+D"}) {
    const ZoneRun found = run(ZoneHardware{}, mode, dirty_zones(8000, others));
    EXPECT_EQ(found.lost, 0) << mode;
    EXPECT_EQ(found.stalls, 0) << mode;
    EXPECT_EQ(found.first_stall, planner::kNever) << mode;
    EXPECT_EQ(found.written, 8000 * (std::string(mode).find("FG") == std::string::npos ? kZoneBlock : kZonePage))
        << mode;
  }
}

TEST(ZoneMachine, stalls_a_write_until_all_is_stored_without_hints) {
  const ZoneHardware hardware = plain_link();
  const Time all = 1000 * kCoarseTakes + hardware.round_trip / 2;  // when the device's register says it
  for (const Time at : {Time{0}, Time{1}, 8 * kCoarseTakes, all - 1}) {
    for (const std::uint32_t zone : {0u, 500u, 999u}) {
      const ZoneRun found = run(hardware, "NB+I", dirty_zones(1000, {{at, page_of(zone)}}));
      EXPECT_EQ(found.lost, all - at);
      EXPECT_EQ(found.first_stall, at);
    }
  }
  EXPECT_EQ(run(hardware, "NB+I", dirty_zones(1000, {{all, page_of(0)}})).lost, 0);
}

// The link comes free as the notice arrives: half a round trip, the transfer, and half a round trip.
TEST(ZoneMachine, takes_41_4_us_for_a_serial_fault_or_51_4_with_62_percent_of_the_rate) {
  const auto fault = [](const ZoneHardware& hardware, Time transfer) {
    return run(hardware, "NB+I+H", dirty_zones(100, {{transfer - hardware.round_trip / 2, page_of(99)}})).lost;
  };
  EXPECT_EQ(fault(plain_link(), kCoarseTakes), 41'384);
  ZoneHardware measured;
  EXPECT_NEAR(65536.0 / (65536 + measured.link_half), 0.62, 1e-4);
  EXPECT_EQ(fault(measured, kSlow), 51'426);
}

// Units and program both go at 8 GB/s in the same order: a write stalls once the buffer has had no place for its zone.
TEST(ZoneMachine, first_stalls_at_64_ms_if_slots_free_one_by_one_and_at_32_if_halves_do) {
  ZoneProgram program = dirty_zones(kMemory / kZoneBlock);
  for (std::uint32_t zone = 0; zone < 12'000; ++zone) program.after.push_back({(zone + 1) * Time{8192}, page_of(zone)});
  ZoneHardware hardware = plain_link();
  hardware.channels = 1;
  hardware.memory_rate = 8e9;
  hardware.buffer = 256'000'000;
  hardware.reserve = 0;
  hardware.slots = 256'000'000 / kZoneBlock;
  EXPECT_NEAR(run(hardware, "NB+I+H+D", program).first_stall * 1e-6, 64, 0.02);
  hardware.slots = 2;
  EXPECT_NEAR(run(hardware, "NB+I+H+D", program).first_stall * 1e-6, 32, 0.02);
}

TEST(ZoneMachine, goes_on_while_a_channel_holds_the_write) {
  ZoneHardware hardware = plain_link();
  const ZoneProgram program = dirty_zones(100, {{0, page_of(99)}, {5'000'000, page_of(5000)}});
  EXPECT_GT(run(hardware, "NB+I", program).lost, 0);
  hardware.held_zones = 1;
  const ZoneRun held = run(hardware, "NB+I", program);
  EXPECT_EQ(held.lost, 0);
  EXPECT_EQ(held.held, 1);
  const ZoneProgram same_channel = dirty_zones(100, {{0, page_of(99)}, {1, page_of(67)}});
  EXPECT_GT(run(hardware, "NB+I", same_channel).lost, 0);  // it holds one
}

struct Compared {
  std::map<std::string, ZoneRun> runs;
  double lost(const std::string& mode) const { return static_cast<double>(runs.at(mode).lost); }
  double relative(const std::string& mode) const { return lost(mode) / lost("F"); }
};

Compared compare(const ZonePattern& pattern, Bytes memory) {
  Compared out;
  const ZoneProgram program = make_program(memory, pattern);
  for (const char* mode :
       {"F", "I", "I-FG", "NB+I", "NB+F+H", "NB+I+H", "NB+I-FG+H", "NB+F+H+D", "NB+I+H+D", "NB+I-FG+H+D"})
    out.runs.emplace(mode, run(of_memory(memory), mode, program));
  return out;
}

TEST(ZoneMachine, orders_the_modes_on_seven_kinds_of_pattern) {
  int kinds = 0;
  for (const NamedPattern& one : zone_patterns()) {
    if (one.adversarial) continue;
    SCOPED_TRACE(one.name);
    ++kinds;
    const Compared found = compare(one.pattern, kMemory);
    for (const char* other : {"I", "NB+I", "NB+F+H"}) EXPECT_LE(found.lost("NB+I+H"), found.lost(other)) << other;
    for (const char* mode : {"NB+F+H", "NB+I+H", "NB+I-FG+H"})
      EXPECT_LE(found.lost(std::string(mode) + "+D"), 1.01 * found.lost(mode)) << mode;
    EXPECT_LE(found.runs.at("I-FG").written, found.runs.at("I").written);
    EXPECT_LE(found.runs.at("NB+I-FG+H").written, found.runs.at("NB+I+H").written);
    EXPECT_LE(found.runs.at("NB+I-FG+H+D").written, found.runs.at("NB+I+H+D").written);
    for (const char* mode : {"NB+F+H+D", "NB+I+H+D", "NB+I-FG+H+D"}) {
      const bool sparse = one.pattern.dirty <= 0.1;
      EXPECT_LE(found.relative(mode), sparse ? 0.05 : 0.33) << mode;
    }
  }
  EXPECT_EQ(kinds, 7);
}

// So that nobody takes the order for a law.
TEST(ZoneMachine, keeps_programs_that_break_the_order) {
  std::map<std::string, Compared> found;
  for (const NamedPattern& one : zone_patterns())
    if (one.adversarial) found.emplace(one.name, compare(one.pattern, kMemory));
  ASSERT_EQ(found.size(), 3);
  EXPECT_GT(found.at("one_zone").lost("NB+I+H"), found.at("one_zone").lost("I"));
  EXPECT_GT(found.at("few_reversed").lost("NB+I+H"), found.at("few_reversed").lost("I"));
  EXPECT_GT(found.at("all_at_once").relative("NB+I+H+D"), 0.33);
}

// The plan throws if a write changes a zone that a cut is owed: no run may.
TEST(ZoneMachine, stores_what_is_owed_whatever_the_program_writes) {
  constexpr Bytes kSmall = Bytes{1} << 24;
  sim::Random random(11);
  for (int i = 0; i < 300; ++i) {
    ZoneProgram program{.memory = kSmall, .before = {}, .after = {}};
    std::vector<bool> blocks(kSmall / kZoneBlock), pages(kSmall / kZonePage);
    const auto page = [&] { return static_cast<std::uint32_t>(random.below(kSmall / kZonePage)); };
    for (std::uint64_t n = random.below(400); n > 0; --n) {
      program.before.push_back(page());
      pages[program.before.back()] = blocks[program.before.back() / 16] = true;
    }
    Time at = 0;
    for (std::uint64_t n = random.below(400); n > 0; --n)
      program.after.push_back({at += static_cast<Time>(random.below(40'000)), page()});
    ZoneHardware hardware = of_memory(kSmall);
    hardware.channels = static_cast<std::uint32_t>(random.between(1, 8));
    hardware.slots = static_cast<std::uint32_t>(random.between(1, 2));
    hardware.reserve = random.chance(0.5) ? 0.75 : 0;
    hardware.held_zones = static_cast<std::uint32_t>(random.below(3));
    for (const char* mode : {"F", "I", "I-FG", "NB+F", "NB+I", "NB+I-FG", "NB+F+H", "NB+I+H", "NB+I-FG+H", "NB+F+H+D",
                             "NB+I+H+D", "NB+I+D", "NB+I-FG+H+D", "I+D"}) {
      const ZoneRun found = run(hardware, mode, program);
      const ZoneMode parts = zone_mode(mode).value();
      const Bytes fine = kZonePage * static_cast<Bytes>(std::ranges::count(pages, true));
      const Bytes coarse = kZoneBlock * static_cast<Bytes>(std::ranges::count(blocks, true));
      EXPECT_EQ(found.written, !parts.incremental ? kSmall : parts.fine ? fine : coarse) << mode;
      EXPECT_EQ(found.plan.copies, found.owed) << mode;
      EXPECT_LE(found.longest_stall, found.lost) << mode;
    }
  }
}

TEST(ZoneMachine, names_what_cannot_be) {
  const auto refuses = [](ZoneHardware hardware, const ZoneProgram& program, const std::string& field) {
    try {
      run(hardware, "NB+I+H+D", program);
      ADD_FAILURE() << field;
    } catch (const std::logic_error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(field + ":")) << error.what();
    }
  };
  const ZoneProgram program = dirty_zones(1);
  refuses({.channels = 0}, program, "channels");
  refuses({.link_rate = 0}, program, "link_rate");
  refuses({.link_half = std::nan("")}, program, "link_half");
  refuses({.memory_rate = -1}, program, "memory_rate");
  refuses({.round_trip = -1}, program, "round_trip");
  refuses({.buffer = 100'000}, program, "buffer");
  refuses({.slots = 0}, program, "slots");
  refuses({.reserve = 1}, program, "reserve");
  refuses({.table_cache = 31}, program, "table_cache");
  refuses({}, {.memory = 0, .before = {}, .after = {}}, "memory");
  refuses({}, {.memory = kZoneBlock, .before = {16}, .after = {}}, "before");
  refuses({}, {.memory = kZoneBlock, .before = {}, .after = {{0, 16}}}, "after");
  refuses({}, {.memory = kZoneBlock, .before = {}, .after = {{1, 0}, {0, 0}}}, "after");
  EXPECT_THROW(make_program(kZoneBlock, {.dirty = 1.5}), std::logic_error);
  EXPECT_THROW(make_program(kZoneBlock, {.pace = 0}), std::logic_error);
  EXPECT_THROW(make_program(kZoneBlock - 1, {}), std::logic_error);
}

}  // namespace
}  // namespace ebb::models
