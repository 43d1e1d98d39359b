#pragma once
// The two file engines, for make_file_engine() alone.
#include <memory>

#include "os/ring.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::transfer {

std::unique_ptr<FileEngine> make_ring_file_engine(std::unique_ptr<os::Ring> ring, std::size_t request_bytes, Done done);
std::unique_ptr<FileEngine> make_thread_file_engine(os::Files& files, unsigned threads, std::size_t request_bytes,
                                                    Done done);

}  // namespace ebb::transfer
