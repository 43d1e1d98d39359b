#pragma once
// The words of a log's lines, written and read.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "planner/commands.hpp"
#include "planner/events.hpp"

namespace ebb::trace {

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
  Line& operator<<(planner::event::Failed::Cause cause) { return *this << static_cast<int>(cause); }
  Line& operator<<(const std::vector<planner::Version>& versions) {
    for (const planner::Version version : versions) *this << version;
    return *this;
  }
  Line& operator<<(const planner::Place& place) {
    return *this << static_cast<int>(place.at.kind) << int{place.at.index} << place.offset;
  }

 private:
  std::string& out_;
};

// Reads a line's words in order; a missing or wrong word makes it fail permanently.
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
  Words& operator>>(planner::event::Failed::Cause& value) { return choice(value, 3); }
  Words& operator>>(std::vector<planner::Version>& versions) {  // to the end of the line
    while (good_ && !done()) *this >> versions.emplace_back();
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

inline std::string_view next_line(std::string_view& text) {
  const auto end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace ebb::trace
