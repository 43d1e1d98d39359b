#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "os/processors.hpp"
#include "storage/admin/inspect.hpp"
#include "storage/scan/record_reader.hpp"

namespace ebb::storage {
namespace {

Verified verify_one(os::Files& files, const std::filesystem::path& directory, const RecordHead& head,
                    const admin::Progress& progress) {
  using Kind = admin::Verdict::Kind;
  RecordReader reader(files, directory, head);
  const auto judge = [&](Errc code) {
    if (code == Errc::unknown_version) return Verified{Kind::gone, reader.trouble()};
    return Verified{code == Errc::damaged ? Kind::damaged : Kind::unreadable, reader.trouble()};
  };
  if (auto opened = reader.open(); !opened) return judge(opened.error().code);
  std::uint64_t read = head.header_bytes;
  for (;;) {
    if (progress && !progress(read)) return {};
    auto piece = reader.next();
    if (!piece) return judge(piece.error().code);
    if (piece->empty()) return {Kind::intact, {}};
    read = piece->size();
  }
}

}  // namespace

std::vector<Verified> verify_all(os::Files& files, const std::filesystem::path& directory,
                                 const std::vector<RecordHead>& records, unsigned threads,
                                 const admin::Progress& progress) {
  if (threads == 0) threads = std::min(os::usable_processors(), 4u);
  std::vector<Verified> out(records.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> ended{false};
  std::mutex mutex;
  std::exception_ptr thrown;
  {
    const admin::Progress told = [&](std::uint64_t bytes) {
      if (progress && !progress(bytes)) ended = true;
      return !ended;
    };
    const auto work = [&] {
      try {
        for (std::size_t i; !ended && (i = next++) < records.size();)
          out[i] = verify_one(files, directory, records[i], told);
      } catch (...) {
        ended = true;
        const std::lock_guard lock(mutex);
        if (!thrown) thrown = std::current_exception();
      }
    };
    std::vector<std::jthread> others;
    try {
      for (std::size_t i = 1; i < std::min<std::size_t>(threads, records.size()); ++i) others.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads: those that started do the work
    }
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
  return out;
}

}  // namespace ebb::storage
