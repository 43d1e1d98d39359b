#include "os/user_directory.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "os/sys_result.hpp"

namespace ebb::os {

Result<OwnDescriptor> open_user_directory(const std::filesystem::path& directory, mode_t refused) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Error{Errc::io_error, describe_errno(errno)};
  OwnDescriptor opened(
      [&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK); });
  if (!opened && (errno == ENOTDIR || errno == ELOOP)) return Error{Errc::not_permitted, "it is no directory"};
  if (!opened && errno != EACCES) return Error{Errc::io_error, describe_errno(errno)};
  struct stat state{};
  const int found = opened ? ::fstat(opened.fd(), &state) : ::lstat(directory.c_str(), &state);
  if (found != 0) return Error{Errc::io_error, describe_errno(errno)};
  if (state.st_uid != ::geteuid()) {
    return Error{Errc::not_permitted, "it belongs to user " + std::to_string(state.st_uid)};
  }
  if (!opened) return Error{Errc::not_permitted, describe_errno(EACCES)};
  if (state.st_mode & refused & kOthersWrite) return Error{Errc::not_permitted, "others may write to it"};
  if (state.st_mode & refused) return Error{Errc::not_permitted, "others may look into it"};
  return opened;
}

}  // namespace ebb::os
