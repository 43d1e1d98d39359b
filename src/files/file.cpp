// The public handle: each call goes to the open file.
#include "ebbtide/file.hpp"

#include "files/open_file.hpp"

namespace ebb {
namespace {

Error no_file() { return {Errc::closed, "this file was moved from"}; }

std::optional<Error> refusal(const files::OpenFile* open, const Interrupt& interrupted) {
  return open == nullptr ? no_file() : open->suspended(interrupted);
}

}  // namespace

File::File(std::unique_ptr<files::OpenFile> open) : open_(std::move(open)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  open_ = std::move(other.open_);
  return *this;
}
File::~File() { abandon(); }

std::string File::name() const { return open_ ? open_->name().name : std::string(); }
Version File::version() const { return open_ ? open_->name().version : 0; }
bool File::writable() const { return open_ && open_->writable(); }
std::uint64_t File::tell() const { return open_ ? open_->position() : 0; }
std::uint64_t File::size() const { return open_ ? open_->size() : 0; }

Result<std::uint64_t> File::read(std::span<std::byte> to, const Interrupt& interrupted) {
  if (auto refused = refusal(open_.get(), interrupted)) return *refused;
  return open_->read(to, interrupted);
}
Result<void> File::write(std::span<const std::byte> from, const Interrupt& interrupted) {
  if (auto refused = refusal(open_.get(), interrupted)) return *refused;
  return open_->write(from, interrupted);
}
Result<void> File::seek(std::uint64_t position) { return open_ ? open_->seek(position) : no_file(); }
Result<void> File::truncate(std::uint64_t bytes, const Interrupt& interrupted) {
  if (auto refused = refusal(open_.get(), interrupted)) return *refused;
  return open_->truncate(bytes, interrupted);
}
Result<void> File::close(const Interrupt& interrupted) { return open_ ? open_->close(interrupted) : Result<void>(); }
void File::abandon() {
  if (open_) open_->abandon();
}
Result<void> File::wait(std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  return open_ ? open_->wait(level, timeout, interrupted) : no_file();
}

}  // namespace ebb
