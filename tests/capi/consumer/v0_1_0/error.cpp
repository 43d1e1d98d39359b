// What a program of 0.1.0 may have written with <ebbtide/error.hpp> alone.
#include <ebbtide/error.hpp>

constexpr ebb::Errc kErrors[] = {
    ebb::Errc::ok,        ebb::Errc::invalid_argument, ebb::Errc::version_exists, ebb::Errc::unknown_version,
    ebb::Errc::consumed,  ebb::Errc::too_large,        ebb::Errc::no_space,       ebb::Errc::size_mismatch,
    ebb::Errc::timed_out, ebb::Errc::io_error,         ebb::Errc::lost,           ebb::Errc::dropped,
    ebb::Errc::closed,    ebb::Errc::unsupported,      ebb::Errc::out_of_memory,  ebb::Errc::damaged,
    ebb::Errc::in_use,    ebb::Errc::not_a_store,      ebb::Errc::not_permitted};

bool use_error() {
  static_assert(static_cast<int>(ebb::Errc::not_permitted) == 18);
  ebb::Result<int> none = ebb::Error{.code = ebb::Errc::closed, .message = "it is closed"};
  ebb::Result<void> fine;
  try {
    static_cast<void>(std::move(none).value());
  } catch (const ebb::BadResult& bad) {
    const std::runtime_error& plain = bad;
    return bad.error().code == kErrors[12] && ebb::name_of(bad.error().code) == "closed" &&
           std::string(plain.what()) == "it is closed" && fine && ebb::Result<int>(3) == 3;
  }
  return false;
}
