#pragma once
// One error vocabulary: an expected failure is a value with a named reason; a broken contract throws std::logic_error.
#if __cplusplus < 202002L
#error "Ebbtide's C++ headers need C++20: compile with -std=c++20"
#endif
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace ebb {

/// Why a call was refused or failed. The names are those of the C API (`EBB_...`) and of the Python exceptions.
enum class Errc {
  ok = 0,
  invalid_argument,  ///< a wrong option, size or handle; the message names the key, the value and what is expected
  version_exists,    ///< this version exists: it was neither dropped nor consumed
  unknown_version,   ///< no such checkpoint was ever written, or it was dropped
  consumed,          ///< restored from an ephemeral store without a further hint: its bytes are gone
  too_large,         ///< larger than every tier
  no_space,          ///< no transfer in flight can make room; the message names each tier's size and use
  size_mismatch,     ///< the targets of a restore do not match the checkpoint's regions
  timed_out,         ///< the call's time limit passed; the operation may still complete
  io_error,          ///< the operating system failed a transfer permanently
  lost,              ///< the checkpoint's only copy could not be written or read back
  dropped,           ///< dropped while the call waited for it
  closed,            ///< the store is closed
  unsupported,       ///< not possible here (a level, tier or file system that this store does not have)
  out_of_memory,     ///< a cache could not be allocated, or there was no memory to read a file
  damaged,           ///< bytes on the disk do not match their checksum (the message names file and offset), or memory
                     ///< was written to after it was committed (HandBack::check)
  in_use,            ///< another process has this store open for writing
  not_a_store,       ///< a directory with other contents
  not_permitted,     ///< another user's store, or one that others can write to
  suspended,  ///< a signal asked for it (Store::suspend_on): what was written is durable, and the program may end
};

/// A reason's name, as in the enumeration: `"no_space"`.
std::string_view name_of(Errc code) noexcept;

/// A failure as a value: its reason, and a sentence for a person.
struct Error {
  Errc code = Errc::ok;
  std::string message;
};

/// Thrown by `Result::value()` when there is no value.
class BadResult : public std::runtime_error {
 public:
  explicit BadResult(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// A value or an Error. `if (!result) use(result.error());`
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }
  /// The value; throws BadResult with the error's message when there is none.
  T value() && {
    if (!*this) throw BadResult(error());
    return std::move(std::get<0>(state_));
  }
  /// Whether there is a value, and it equals `value` (as in std::expected).
  friend bool operator==(const Result& result, const T& value)
    requires requires(const T& a) { a == a; }
  {
    return result && *result == value;
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  explicit operator bool() const noexcept { return !error_; }
  const Error& error() const { return *error_; }
  void value() && {
    if (error_) throw BadResult(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace ebb
