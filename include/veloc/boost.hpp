#pragma once
// Regions of objects that Boost.Serialization knows: client->mem_protect(id, serializer(x), deserializer(x)).
#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <exception>
#include <functional>
#include <iostream>

namespace veloc::boost {

template <class T>
std::function<void(std::ostream&)> serializer(T& data) {
  return [&data](std::ostream& out) { ::boost::archive::binary_oarchive(out) << data; };
}

template <class T>
std::function<bool(std::istream&)> deserializer(T& data) {
  return [&data](std::istream& in) {
    try {
      ::boost::archive::binary_iarchive(in) >> data;
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
}

}  // namespace veloc::boost
