#pragma once
// What every trial of reliability has in common: how it is told what to do, and how it tells what came of it.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::trials {

inline constexpr const char* kDirectory = "/store";  // of the stores in memory

/// What one case came to. The last three are violations wherever they are met.
enum class Outcome : std::uint8_t {
  exact,         // all that was written is there, bit for bit
  older_exact,   // what was not reported durable is missing; all else is there, bit for bit
  clear_error,   // a call failed by name, or damage was named; nothing wrong was handed out
  silent_wrong,  // a wrong byte, or something that was reported durable missing
  crash,
  hang,
};
inline constexpr std::size_t kOutcomes = 6;
std::string_view name_of(Outcome outcome);

struct TrialOptions {
  std::uint64_t count = 0;  // cases; 0: as many as the trial means
  std::uint64_t seed = 1;
  bool snapshots = false;           // of memory, instead of checkpoints
  bool shared = false;              // of stores with a shared directory
  bool short_form = false;          // a few seconds at most
  std::filesystem::path directory;  // a new one, on a disk, for trials that need one; theirs to fill
  std::string without;              // of power: the sync or order that is left out, or "all"
  std::string program;              // this one, to be run again
};

/// Says on the standard output, a line each, what comes of a trial: reliability/run counts it, and by the last line
/// knows of what a crash or a hang is to be said.
///
/// Thread safety: one thread writes.
class Report {
 public:
  Report() = default;
  Report(const Report&) = delete;

  /// Names the case that begins now.
  void begin(const std::string& what);
  void count(Outcome outcome, std::uint64_t cases = 1);
  /// Counts under a name of its own.
  void count_by(const std::string& name, std::uint64_t cases = 1);
  /// A promise that was not kept.
  void violation(const std::string& what);
  /// For whoever looks on.
  void say(const std::string& what);
  /// Without this the trial has crashed.
  void done();

  std::uint64_t violations() const { return violations_; }
  const std::string& current() const { return current_; }

 private:
  std::string current_;
  std::uint64_t violations_ = 0;
};

struct Trial {
  const char* name;
  void (*run)(const TrialOptions& options, Report& report);
  bool snapshots = false;
  bool shared = false;
};

void run_power(const TrialOptions& options, Report& report);
/// Of stores with a shared directory: either directory, or both, lose what was not synced, or the local one is gone.
void run_shared_power(const TrialOptions& options, Report& report);
/// With `without`: each mistake must break a promise.
void run_power_without(const TrialOptions& options, Report& report);
void run_flips(const TrialOptions& options, Report& report);
void run_truncate(const TrialOptions& options, Report& report);
void run_hostile(const TrialOptions& options, Report& report);
void run_faults(const TrialOptions& options, Report& report);
void run_limits(const TrialOptions& options, Report& report);
void run_kills(const TrialOptions& options, Report& report);
/// What a process of `kills` does that is to be killed.
int run_kills_child(const std::vector<std::string>& arguments);

}  // namespace ebb::trials
