#pragma once
// The two engines over files opened directly or buffered, real or faulty.
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>

#include "tests/doubles/faulty_files.hpp"
#include "tests/os/test_files.hpp"
#include "tests/transfer/completions.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::test {

struct EngineCase {
  transfer::FileEngineOptions::Kind kind = transfer::FileEngineOptions::Kind::threads;
  bool direct = true;
  bool faulty = false;  // EINTR, EAGAIN and short transfers all the time
};

inline std::string name_of_case(const ::testing::TestParamInfo<EngineCase>& info) {
  std::string name = info.param.kind == transfer::FileEngineOptions::Kind::uring ? "io_uring" : "threads";
  name.append(info.param.direct ? "_direct" : "_buffered");
  if (info.param.faulty) name.append("_faulty");
  return name;
}

class FileEngineTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  static constexpr std::uint64_t kFileBytes = 8 << 20;

  void SetUp() override { open(65536, kFileBytes); }

  // Small requests, so that a transfer is many of them.
  void open(std::size_t request_bytes, std::uint64_t file_bytes) {
    engine_.reset();
    transfer::FileEngineOptions options;
    options.kind = GetParam().kind;
    options.threads = 3;
    options.entries = 8;
    options.request_bytes = request_bytes;
    auto made = transfer::make_file_engine(files_, options, completions_.done());
    if (!made) GTEST_SKIP() << made.error().message;
    engine_ = std::move(*made);
    file_ = open_file(files_, GetParam().direct, file_bytes);
    if (!GetParam().faulty) return;
    using doubles::FileCall;
    for (const FileCall call : {FileCall::read, FileCall::write}) {
      files_.fail_at_rate(call, 0.1, EINTR);
      files_.fail_at_rate(call, 0.1, EAGAIN);
      files_.shorten_at_rate(call, 0.3);
    }
  }

  Result<void> transfer(transfer::Direction direction, std::vector<transfer::Piece> pieces) {
    const transfer::Token token = next_++;
    engine_->submit(token, direction, file_, pieces);
    return completions_.of(token);
  }
  Result<void> write(std::vector<transfer::Piece> pieces) { return transfer(transfer::Direction::write, pieces); }
  Result<void> read(std::vector<transfer::Piece> pieces) { return transfer(transfer::Direction::read, pieces); }

  os::PosixFiles posix_;
  doubles::FaultyFiles files_{posix_, 99};
  Completions completions_;
  os::File file_;
  std::unique_ptr<transfer::FileEngine> engine_;
  transfer::Token next_ = 1'000'000;
};

}  // namespace ebb::test
