#pragma once
// What the copy engine reports to the runtime: ends of commands, by their ids, and of what the application's streams
// held at some moment.
#include "transfer/token.hpp"

namespace ebb::store {

inline constexpr transfer::Token kReady = transfer::Token{1} << 63;       // with a request's id
inline constexpr transfer::Token kHandedBack = transfer::Token{1} << 62;  // with a key of HandBacks

}  // namespace ebb::store
