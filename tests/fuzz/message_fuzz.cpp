#include <span>
#include <stdexcept>

#include "node/messages.hpp"
#include "tests/fuzz/targets.hpp"

namespace ebb::fuzz {

void message(const std::uint8_t* data, std::size_t size) {
  const auto heard = node::message::parse(std::as_bytes(std::span(data, size)));
  if (!heard) {
    if (heard.error().code != Errc::damaged && heard.error().code != Errc::unsupported) {
      throw std::logic_error("a message is refused without its reason");
    }
    return;
  }
  const auto said = node::message::encode(*heard);
  const auto again = node::message::parse(said);
  if (!again || node::message::encode(*again) != said) throw std::logic_error("a message changes when it is passed on");
}

}  // namespace ebb::fuzz
