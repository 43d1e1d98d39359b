#include "transfer/file_engine.hpp"

#include <stdexcept>

#include "transfer/file_engines.hpp"

namespace ebb::transfer {

Result<std::unique_ptr<FileEngine>> make_file_engine(os::Files& files, const FileEngineOptions& options, Done done) {
  using Kind = FileEngineOptions::Kind;
  // A ring's completions have 32-bit counts.
  if (options.request_bytes == 0 || options.request_bytes % os::kBlock || options.request_bytes > (1u << 30)) {
    throw std::logic_error("requests are cut to a multiple of 4096 bytes, at most 1 GiB");
  }
  if (options.threads == 0 || options.entries == 0) throw std::logic_error("a file engine needs threads and entries");
  if (options.kind != Kind::threads) {
    Result<std::unique_ptr<os::Ring>> ring = files.open_ring(options.entries);
    if (ring) return make_ring_file_engine(std::move(*ring), options.request_bytes, std::move(done));
    if (options.kind == Kind::uring) return ring.error();
  }
  return make_thread_file_engine(files, options.threads, options.request_bytes, std::move(done));
}

}  // namespace ebb::transfer
