#pragma once
// What every benchmark program needs: options from the command line, medians, and a JSON file.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;
inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// `--name value` pairs; throws std::invalid_argument naming an option that the program does not have.
class Options {
 public:
  Options(int argc, char** argv, std::map<std::string, std::string> known) : values_(std::move(known)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0 || !values_.count(name.substr(2))) {
        std::string all;
        for (const auto& [key, value] : values_) all += " --" + key;
        throw std::invalid_argument("unknown option " + name + "; there are" + all);
      }
      if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
      values_[name.substr(2)] = argv[i + 1];
    }
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  std::uint64_t number(const std::string& name) const {
    std::size_t used = 0;
    const std::uint64_t value = std::stoull(values_.at(name), &used);
    if (used != values_.at(name).size()) throw std::invalid_argument("--" + name + " must be a whole number");
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
};

inline double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("the median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// One flat JSON object: numbers, lists of numbers and names.
class Json {
 public:
  Json& put(const std::string& name, double value) { return raw(name, number(value)); }
  Json& put(const std::string& name, const std::string& value) { return raw(name, '"' + value + '"'); }
  Json& put(const std::string& name, const std::vector<double>& values) {
    std::string list = "[";
    for (std::size_t i = 0; i < values.size(); ++i) list += (i ? ", " : "") + number(values[i]);
    return raw(name, list + "]");
  }
  /// To `path`, or to stdout when it is empty.
  void write(const std::string& path) const {
    const std::string text = "{\n" + body_ + "\n}\n";
    if (path.empty()) {
      std::fputs(text.c_str(), stdout);
      return;
    }
    std::ofstream file(path);
    if (!(file << text) || !file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  static std::string number(double value) {
    std::ostringstream out;
    out.precision(12);
    out << value;
    return out.str();
  }
  Json& raw(const std::string& name, const std::string& value) {
    body_ += (body_.empty() ? "" : ",\n") + (" \"" + name + "\": ") + value;
    return *this;
  }
  std::string body_;
};

}  // namespace bench
