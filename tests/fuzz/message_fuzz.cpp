#include <span>
#include <stdexcept>

#include "share/messages.hpp"
#include "tests/fuzz/targets.hpp"

namespace ebb::fuzz {

void message(const std::uint8_t* data, std::size_t size) {
  const auto heard = share::message::parse(std::as_bytes(std::span(data, size)));
  if (!heard) {
    if (heard.error().code != Errc::damaged && heard.error().code != Errc::unsupported) {
      throw std::logic_error("a message is refused without its reason");
    }
    return;
  }
  const auto said = share::message::encode(*heard);
  const auto again = share::message::parse(said);
  if (!again || share::message::encode(*again) != said)
    throw std::logic_error("a message changes when it is passed on");
}

}  // namespace ebb::fuzz
