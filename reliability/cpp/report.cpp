#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <sys/mman.h>

#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

constexpr std::size_t kText = 600, kName = 64, kMostNames = 96, kMostViolations = 64;

void copy(char* to, std::size_t room, const std::string& text) {
  const std::size_t many = std::min(text.size(), room - 1);
  std::replace_copy(text.data(), text.data() + many, to, '\0', '?');
  to[many] = '\0';
}

std::string in_quotes(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (byte < 0x20 || byte > 0x7e) {  // names may be any bytes
      out.append("\\u00").append({kDigits[byte >> 4], kDigits[byte & 15]});
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

}  // namespace

struct Report::Shared {
  std::array<std::atomic<std::uint64_t>, kOutcomes> outcomes{};
  std::atomic<std::uint64_t> beat{0}, names{0}, violations{0};
  char current[kText]{};
  struct Named {
    char name[kName]{};
    std::atomic<std::uint64_t> cases{0};
  };
  std::array<Named, kMostNames> by{};
  std::array<char[kText], kMostViolations> texts{};
};

std::string_view name_of(Outcome outcome) {
  static constexpr std::array<std::string_view, kOutcomes> kNames{"EXACT",        "OLDER_EXACT", "CLEAR_ERROR",
                                                                  "SILENT_WRONG", "CRASH",       "HANG"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Report::Report() {
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shared_ = new (memory) Shared;
}

Report::~Report() { ::munmap(shared_, sizeof(Shared)); }

void Report::begin(const std::string& what) {
  copy(shared_->current, kText, what);
  ++shared_->beat;
}

void Report::count(Outcome outcome, std::uint64_t cases) {
  shared_->outcomes[static_cast<std::size_t>(outcome)] += cases;
}

void Report::count_by(const std::string& name, std::uint64_t cases) {
  std::size_t at = 0;
  while (at < shared_->names && name != shared_->by[at].name) ++at;
  if (at == kMostNames || name.size() >= kName) throw std::logic_error("no room to count " + name);
  if (at == shared_->names) {
    copy(shared_->by[at].name, kName, name);
    ++shared_->names;
  }
  shared_->by[at].cases += cases;
}

void Report::violation(const std::string& what) {
  const std::uint64_t at = shared_->violations;
  if (at < kMostViolations) copy(shared_->texts[at], kText, what);
  ++shared_->violations;
}

std::uint64_t Report::outcomes(Outcome outcome) const { return shared_->outcomes[static_cast<std::size_t>(outcome)]; }
std::uint64_t Report::beat() const { return shared_->beat; }
std::uint64_t Report::violations() const { return shared_->violations; }
std::string Report::current() const { return shared_->current; }

std::string Report::json(const std::string& trial, std::uint64_t seed) const {
  std::uint64_t cases = 0;
  std::string outcomes;
  for (std::size_t i = 0; i < kOutcomes; ++i) {
    const std::uint64_t many = shared_->outcomes[i];
    cases += many;
    outcomes += (i ? ", " : "") + in_quotes(name_of(static_cast<Outcome>(i))) + ": " + std::to_string(many);
  }
  std::string by, violations;
  for (std::size_t i = 0; i < shared_->names; ++i) {
    by += (i ? ", " : "") + in_quotes(shared_->by[i].name) + ": " + std::to_string(shared_->by[i].cases);
  }
  for (std::size_t i = 0; i < std::min<std::uint64_t>(kMostViolations, shared_->violations); ++i) {
    violations += (i ? ", " : "") + in_quotes(shared_->texts[i]);
  }
  return "{\"trial\": " + in_quotes(trial) + ", \"seed\": " + std::to_string(seed) +
         ", \"count\": " + std::to_string(cases) + ", \"outcomes\": {" + outcomes + "}, \"by\": {" + by +
         "}, \"violations\": [" + violations + "]}\n";
}

std::string Report::text() const {
  std::string out;
  for (std::size_t i = 0; i < kOutcomes; ++i) {
    out += std::string(i ? "  " : "") + std::string(name_of(static_cast<Outcome>(i))) + " " +
           std::to_string(shared_->outcomes[i]);
  }
  out += "\n";
  for (std::size_t i = 0; i < shared_->names; ++i) {
    out += "  " + std::string(shared_->by[i].name) + " " + std::to_string(shared_->by[i].cases) + "\n";
  }
  for (std::size_t i = 0; i < std::min<std::uint64_t>(kMostViolations, shared_->violations); ++i) {
    out += "VIOLATION " + in_quotes(shared_->texts[i]) + "\n";
  }
  return out + std::to_string(shared_->violations) + " violations\n";
}

}  // namespace ebb::trials
