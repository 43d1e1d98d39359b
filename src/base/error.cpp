#include "ebbtide/error.hpp"

namespace ebb {

std::string_view name_of(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return "ok";
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::version_exists: return "version_exists";
    case Errc::unknown_version: return "unknown_version";
    case Errc::consumed: return "consumed";
    case Errc::too_large: return "too_large";
    case Errc::no_space: return "no_space";
    case Errc::size_mismatch: return "size_mismatch";
    case Errc::timed_out: return "timed_out";
    case Errc::io_error: return "io_error";
    case Errc::lost: return "lost";
    case Errc::dropped: return "dropped";
    case Errc::closed: return "closed";
    case Errc::unsupported: return "unsupported";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::damaged: return "damaged";
    case Errc::in_use: return "in_use";
    case Errc::not_a_store: return "not_a_store";
    case Errc::not_permitted: return "not_permitted";
    case Errc::suspended: return "suspended";
  }
  return "unknown";
}

}  // namespace ebb
