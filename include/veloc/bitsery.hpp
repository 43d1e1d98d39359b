#pragma once
// Regions of objects that bitsery knows: client->mem_protect(id, serializer(x), deserializer(x)).
#include <bitsery/adapter/stream.h>
#include <bitsery/bitsery.h>
#include <functional>
#include <iostream>

namespace veloc::bitsery {

template <class T>
std::function<void(std::ostream&)> serializer(T& data) {
  return [&data](std::ostream& out) {
    ::bitsery::Serializer<::bitsery::OutputBufferedStreamAdapter> archive{out};
    archive.object(data);
    archive.adapter().flush();
  };
}

template <class T>
std::function<bool(std::istream&)> deserializer(T& data) {
  return [&data](std::istream& in) {
    return ::bitsery::quickDeserialization<::bitsery::InputStreamAdapter>(in, data).first ==
           ::bitsery::ReaderError::NoError;
  };
}

}  // namespace veloc::bitsery
