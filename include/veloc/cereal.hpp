#pragma once
// Regions of objects that cereal knows: client->mem_protect(id, serializer(x), deserializer(x)).
#include <cereal/archives/binary.hpp>
#include <exception>
#include <functional>
#include <iostream>

namespace veloc::cereal {

template <class T>
std::function<void(std::ostream&)> serializer(T& data) {
  return [&data](std::ostream& out) {
    ::cereal::BinaryOutputArchive archive(out);
    archive(data);
  };
}

template <class T>
std::function<bool(std::istream&)> deserializer(T& data) {
  return [&data](std::istream& in) {
    try {
      ::cereal::BinaryInputArchive archive(in);
      archive(data);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
}

}  // namespace veloc::cereal
