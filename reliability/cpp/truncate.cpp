// Every file of a small store ends at every length that it had on the way.
#include "reliability/cpp/harmed.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {

void run_truncate(const TrialOptions& options, Report& report) {
  std::uint64_t cases = 0;
  for (const bool closed : {true, false}) {
    report.begin("making a store");
    const Image image = make_image(options.seed * 1000 + closed, {.openings = 1, .writes = 4, .largest = 5000}, closed);
    for (const auto& [name, bytes] : image.files) {
      // Behind the last record there are only blocks that nothing was written to. In the short form few lengths but
      // those around the borders of blocks.
      std::uint64_t end = bytes;
      for (const storage::ScannedSegment& segment : image.scanned.segments) {
        if (storage::segment_name(segment.segment) == name) end = segment.end;
      }
      const auto tried = [&](std::uint64_t length) {
        return length % 4096 < 2 || (options.short_form ? length % 997 == 0 : length <= end);
      };
      for (std::uint64_t length = 0; length < bytes; ++length) {
        if (!tried(length)) continue;
        if (options.count && cases == options.count) return;
        const std::string where =
            std::string(closed ? "closed, " : "killed, ") + name + " of " + std::to_string(length) + " bytes";
        report.begin(where);
        const auto files = image.open();
        const auto fd = static_cast<int>(files->open("/store/" + name, os::Open::write, false).value);
        static_cast<void>(files->truncate(fd, length));
        static_cast<void>(files->close(fd));
        // Of one that was not closed nobody knows how long it was.
        auto named = verify_all(*files);
        const Named* const needed = named && closed ? &*named : nullptr;
        const Layer layer = cases % 8 == 0 ? Layer::store : Layer::storage;
        const Verdict verdict = compare(image, files, layer, cases % 3 != 0, needed);
        report.count(verdict.outcome);
        report.count_by(storage::segment_number(name) ? "segments" : name);
        for (const std::string& what : verdict.violations) report.violation(where + ": " + what);
        ++cases;
      }
    }
  }
}

}  // namespace ebb::trials
