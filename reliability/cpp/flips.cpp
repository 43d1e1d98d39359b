// One byte of one file is another: never a wrong byte, and what is hit is named.
#include <algorithm>
#include <random>
#include <set>

#include "reliability/cpp/harmed.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

using storage::kSector;

constexpr const char* kMarks = "headers, marks and the index";

struct Place {
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  const char* what = "";
  const storage::ScannedRecord* record = nullptr;  // that it is of
  std::uint64_t named = 0;                         // where verify must say that it is
};

// What lies where. All of these but "elsewhere" are under a checksum.
class Map {
 public:
  explicit Map(const Image& image) : image_(image) {
    for (const auto& [name, bytes] : image.files) {
      if (name == storage::kStoreFile) marks_.push_back({name, 0, bytes, "store"});
      if (name == storage::kIndexFile) marks_.push_back({name, 0, bytes, "index"});
      all_ += bytes;
    }
    for (const storage::ScannedSegment& segment : image.scanned.segments) {
      const std::string name = storage::segment_name(segment.segment);
      marks_.push_back({name, 0, kSector, "segment head"});
      for (const storage::ScannedRecord& record : segment.records) {
        const storage::RecordHead& head = record.head;
        const std::uint64_t at = head.place.offset, payload = at + head.header_bytes;
        marks_.push_back({name, at, kSector, "mark", &record, at});
        if (head.header_bytes > kSector)
          marks_.push_back({name, at + kSector, head.header_bytes - kSector, "header", &record, at});
        if (head.compact()) continue;
        for (std::uint64_t from = 0; from < head.payload_bytes; from += head.block_bytes) {
          const std::uint64_t bytes = std::min<std::uint64_t>(head.block_bytes, head.payload_bytes - from);
          payloads_.push_back({name, payload + from, bytes, "payload", &record, payload + from});
        }
      }
    }
  }

  // One byte in what the rest hangs on.
  Place draw_mark(std::mt19937_64& random) const {
    Place out = marks_[random() % marks_.size()];
    out.offset += random() % out.bytes;
    return out;
  }
  // One byte anywhere.
  Place draw(std::mt19937_64& random) const {
    std::uint64_t at = random() % all_;
    std::size_t file = 0;
    while (at >= image_.files[file].second) at -= image_.files[file++].second;
    Place out{image_.files[file].first, at, 1, "elsewhere"};
    for (const auto* places : {&marks_, &payloads_}) {
      for (const Place& in : *places) {
        if (in.file != out.file || at < in.offset || at >= in.offset + in.bytes) continue;
        out = in;
        out.offset = at;
      }
    }
    return out;
  }

 private:
  const Image& image_;
  std::vector<Place> marks_, payloads_;
  std::uint64_t all_ = 0;
};

bool is_live(const Place& place) { return place.what != std::string("elsewhere"); }
bool is_mark(const Place& place) { return is_live(place) && place.what != std::string("payload"); }

// What tells whose a record is when its own header cannot: the index, or the one before.
std::set<std::pair<std::string, std::uint64_t>> known_places(const Image& image) {
  std::set<std::pair<std::string, std::uint64_t>> out;
  const auto files = image.open();
  for (const char* const name : {storage::kIndexFile, storage::kOldIndexFile}) {
    const auto file = storage::read_index(*files, std::filesystem::path("/store") / name).value();
    if (!file) continue;
    const storage::ScannedStore index = storage::parse_index(file->bytes, image.scanned.head).value();
    for (const storage::ScannedSegment& segment : index.segments) {
      for (const storage::ScannedRecord& record : segment.records)
        out.emplace(storage::segment_name(segment.segment), record.head.place.offset);
    }
  }
  return out;
}

// Empty, or what verify should have said of a flip that touched a live byte: where it is, and which checkpoint it hit
// (but for a header that rotted and no index knows: of that its version, if the head is whole).
std::string lacks(const Place& place, const Result<Named>& named, bool known, const std::string& by_error) {
  if (place.what == std::string("store"))
    return by_error.find("/store/store") == std::string::npos ? "verify does not name the file" : "";
  if (!named) return "verify gives up: " + by_error;
  const bool header = place.what == std::string("mark") || place.what == std::string("header");
  const bool version = !header || known || place.what == std::string("header");
  const bool history = !header || known;
  std::string out = "verify does not name the place";
  for (const NamedDamage& one : *named) {
    if (one.file != place.file || one.offset != place.named) continue;
    if (place.record == nullptr) return {};
    const bool right =
        (!history || one.history == place.record->history) && (!version || one.version == place.record->head.version);
    if (right) return {};
    out = "verify does not name the checkpoint";
  }
  return out;
}

void flip(MemoryFiles& files, const Place& place, std::byte bits) {
  const auto fd = static_cast<int>(files.open("/store/" + place.file, os::Open::write, false).value);
  std::byte one{};
  static_cast<void>(files.read(fd, &one, 1, place.offset));
  one ^= bits;
  static_cast<void>(files.write(fd, &one, 1, place.offset));
  static_cast<void>(files.close(fd));
}

}  // namespace

void run_flips(const TrialOptions& options, Report& report) {
  const std::uint64_t count = options.count ? options.count : options.short_form ? 150 : 10'000;
  std::mt19937_64 random(options.seed);
  constexpr std::uint64_t kEach = 1250;  // flips of one store
  std::uint64_t marks = 0;
  for (std::uint64_t done = 0, round = 0; done < count; ++round) {
    report.begin("making a store");
    const Image image =
        make_image(options.seed * 1000 + round, {.openings = 2, .writes = 8, .largest = 150'000}, round % 4 != 3);
    const Map map(image);
    const auto places = known_places(image);
    for (std::uint64_t end = std::min(count, done + (options.short_form ? 40 : kEach)); done < end; ++done) {
      const Place place = done % 2 ? map.draw(random) : map.draw_mark(random);
      const auto bits = static_cast<std::byte>(1 + random() % 255);
      const std::string where = "seed " + std::to_string(image.script.seed) + ", " + place.file + ", offset " +
                                std::to_string(place.offset) + " (" + place.what + "), bits " +
                                std::to_string(std::to_integer<int>(bits));
      report.begin(where);
      const auto files = image.open();
      flip(*files, place, bits);
      auto named = verify_all(*files);
      const std::string error = named ? std::string() : named.error().message;
      if (is_live(place)) {
        const bool known = place.record != nullptr && places.contains({place.file, place.named});
        const std::string lacking = lacks(place, named, known, error);
        if (!lacking.empty()) report.violation(where + ": " + lacking);
        report.count_by("live bytes, named by verify", lacking.empty());
        const bool nameless = is_mark(place) && place.record != nullptr && !known;
        if (nameless) report.count_by("of them in headers of a killed process, that no index knows");
      } else if (!named) {
        report.violation(where + ": nothing lives there, and: " + error);
      }
      const Layer layer = done % 3 == 0 ? Layer::store : Layer::storage;
      const Verdict verdict = compare(image, files, layer, done % 4 != 0, named ? &*named : nullptr);
      report.count(verdict.outcome);
      report.count_by(place.what);
      if (is_mark(place)) {
        report.count_by(kMarks);
        ++marks;
      }
      for (const std::string& what : verdict.violations) report.violation(where + ": " + what);
    }
  }
  if (marks < count / 2) report.violation("less than half of the flips hit " + std::string(kMarks));
}

}  // namespace ebb::trials
