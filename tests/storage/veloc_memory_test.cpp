// VELOC's files when there is no memory for their checksum files: the caller is told by name, and the storage goes on.
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/files.hpp"
#include "storage/veloc/veloc_storage.hpp"
#include "tests/doubles/forward_files.hpp"
#include "tests/os/refused_memory.hpp"
#include "tests/os/test_files.hpp"
#include "tests/storage/persisted_objects.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::storage {
namespace {

using doubles::FileCall;

constexpr std::size_t kBytes = std::size_t{3} * os::kBlock;

/// Refuses the next memory that the thread wants which makes a call, once. No call whose path is copied may come
/// before.
class RefusingFiles final : public doubles::ForwardFiles<RefusingFiles> {
 public:
  using ForwardFiles::ForwardFiles;
  void refuse_after(FileCall call) { after_ = call; }
  bool refused() const { return !after_; }
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& call, Whole&& whole) noexcept {
    const os::SysResult result = whole();
    if (after_ == call.call) after_.reset(), test::refuse_nth = 1;
    return result;
  }
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }

 private:
  std::optional<FileCall> after_;  // set and read by turns: the test waits for what it began
};

class VelocMemoryTest : public ::testing::Test {
 protected:
  VelocMemoryTest() { std::filesystem::create_directory(directory_); }
  ~VelocMemoryTest() override {
    storage_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  void open() {
    PersistentOptions options;
    options.directory = directory_ / "files";
    options.capacity = 1 << 20;
    options.block_bytes = os::kBlock;
    storage_.reset();
    storage_ =
        open_veloc_storage(files_, options, {0, directory_ / "meta", true}, completions_.done(), persisted_.callback())
            .value();
  }
  Result<void> put() {
    const Token token = ++tokens_;
    if (auto begun = storage_->put(token, kFirstObject, kBytes, 0, bytes_.data(), kBytes); !begun) return begun;
    return completions_.of(token);
  }
  Result<void> get(ObjectId object) {
    const Token token = ++tokens_;
    if (auto begun = storage_->get(token, object, 0, back_.data(), kBytes); !begun) return begun;
    return completions_.of(token);
  }
  static void expect_refused(const Result<void>& how) {
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().code, Errc::out_of_memory) << how.error().message;
    EXPECT_NE(how.error().message.find("version 1 of \"heat\""), std::string::npos) << how.error().message;
  }

  const std::filesystem::path directory_ = test::disk_directory() / ("veloc-memory-" + std::to_string(::getpid()));
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> back_ = std::vector<std::byte>(kBytes);
  os::PosixFiles posix_;
  RefusingFiles files_{posix_};
  test::Completions completions_;
  PersistedObjects persisted_;
  std::unique_ptr<PersistentStorage> storage_;
  Token tokens_ = 0;
};

TEST_F(VelocMemoryTest, a_sum_that_finds_no_memory_is_told_and_can_be_made_again) {
  if (const auto begun = Sha256::begin(); !begun) GTEST_SKIP() << begun.error().message;
  open();
  Description made{"heat", 1, {}};
  made.info.regions = {{0, kBytes, 0}};
  made.info.bytes = kBytes;
  ASSERT_TRUE(storage_->begin(kFirstObject, std::make_shared<const Description>(made)));
  files_.refuse_after(FileCall::sync);
  expect_refused(put());
  ASSERT_TRUE(files_.refused());
  ASSERT_TRUE(put());
  ASSERT_TRUE(persisted_.of(kFirstObject));
  open();
  ASSERT_EQ(storage_->found().size(), 1u);
  const ObjectId found = storage_->found().front().object;
  files_.refuse_after(FileCall::read);
  expect_refused(get(found));
  ASSERT_TRUE(files_.refused());
  const auto again = get(found);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(back_, bytes_);
}

}  // namespace
}  // namespace ebb::storage
