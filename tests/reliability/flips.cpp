// One byte of one file is another: never a wrong byte, and what is hit is named.
#include <algorithm>
#include <random>

#include "tests/reliability/harmed.hpp"
#include "tests/reliability/trial.hpp"

namespace ebb::trials {
namespace {

using storage::kSector;

struct Place {
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  const char* what = "";
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
        marks_.push_back({name, head.place.offset, kSector, "mark"});
        marks_.push_back({name, head.place.offset + kSector, head.header_bytes - kSector, "header"});
        payloads_.push_back({name, head.place.offset + head.header_bytes, head.payload_bytes, "payload"});
      }
    }
  }

  // One byte; half of them in what the rest hangs on.
  Place draw(std::mt19937_64& random) const {
    if (random() % 2) {
      const Place& in = marks_[random() % marks_.size()];
      return {in.file, in.offset + random() % in.bytes, 1, in.what};
    }
    std::uint64_t at = random() % all_;
    std::size_t file = 0;
    while (at >= image_.files[file].second) at -= image_.files[file++].second;
    Place out{image_.files[file].first, at, 1, "elsewhere"};
    for (const auto* places : {&marks_, &payloads_}) {
      for (const Place& in : *places) {
        if (in.file == out.file && out.offset >= in.offset && out.offset < in.offset + in.bytes) out.what = in.what;
      }
    }
    return out;
  }

 private:
  const Image& image_;
  std::vector<Place> marks_, payloads_;
  std::uint64_t all_ = 0;
};

void flip(MemoryFiles& files, const Place& place, std::byte bits) {
  const auto fd = static_cast<int>(files.open("/store/" + place.file, platform::Open::write, false).value);
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
  for (std::uint64_t done = 0, round = 0; done < count; ++round) {
    report.begin("making a store");
    const Image image =
        make_image(options.seed * 1000 + round, {.openings = 2, .writes = 8, .largest = 150'000}, round % 4 != 3);
    const Map map(image);
    for (std::uint64_t end = std::min(count, done + (options.short_form ? 40 : kEach)); done < end; ++done) {
      const Place place = map.draw(random);
      const auto bits = static_cast<std::byte>(1 + random() % 255);
      const std::string where = "seed " + std::to_string(image.script.seed) + ", " + place.file + ", offset " +
                                std::to_string(place.offset) + " (" + place.what + "), bits " +
                                std::to_string(std::to_integer<int>(bits));
      report.begin(where);
      const auto files = image.open();
      flip(*files, place, bits);
      auto named = verify_all(*files);
      const bool live = place.what != std::string("elsewhere");
      const bool hit = !named || std::ranges::any_of(*named, [&](const auto& one) { return one.first == place.file; });
      if (live && !hit) report.violation(where + ": verify does not name it");
      if (!live && !named) report.violation(where + ": nothing lives there, and: " + named.error().message);
      const Layer layer = done % 3 == 0 ? Layer::store : Layer::storage;
      const Verdict verdict = compare(image, files, layer, done % 4 != 0, named ? &*named : nullptr);
      report.count(verdict.outcome);
      report.count_by(place.what);
      for (const std::string& what : verdict.violations) report.violation(where + ": " + what);
    }
  }
}

}  // namespace ebb::trials
