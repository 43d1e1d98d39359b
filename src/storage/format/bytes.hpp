#pragma once
// Numbers to bytes and back as in files: little endian, of fixed width.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace ebb::storage {

/// Writes fields one after the other; the caller has made sure that there is room.
class BytesWriter {
 public:
  explicit BytesWriter(std::byte* at) : at_(at) {}
  template <class T>
  void number(T value) {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) *at_++ = static_cast<std::byte>(bits >> (8 * i) & 0xff);
  }
  void bytes(std::span<const std::byte> data) {
    if (!data.empty()) std::memcpy(at_, data.data(), data.size());
    at_ += data.size();
  }
  void text(std::string_view data) { bytes(std::as_bytes(std::span(data.data(), data.size()))); }
  std::byte* at() const { return at_; }

 private:
  std::byte* at_;
};

/// Reads fields one after the other. Beyond the end it returns zeros, and ok() is false from then on.
class BytesReader {
 public:
  explicit BytesReader(std::span<const std::byte> data) : data_(data) {}
  template <class T>
  T number() {
    const auto from = bytes(sizeof(T));
    std::make_unsigned_t<T> bits = 0;
    for (std::size_t i = 0; i < from.size(); ++i) bits |= std::to_integer<std::make_unsigned_t<T>>(from[i]) << (8 * i);
    return static_cast<T>(bits);
  }
  template <class Array>
  Array array() {
    Array out{};
    const auto from = bytes(out.size());
    if (from.size() == out.size()) std::memcpy(out.data(), from.data(), out.size());
    return out;
  }
  /// Empty if fewer are left.
  std::span<const std::byte> bytes(std::uint64_t count) {
    if (count > data_.size()) {
      ok_ = false;
      data_ = {};
      return {};
    }
    const auto out = data_.first(static_cast<std::size_t>(count));
    data_ = data_.subspan(out.size());
    return out;
  }
  std::string_view text(std::uint64_t count) {
    const auto from = bytes(count);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  std::span<const std::byte> rest() const { return data_; }
  bool ok() const { return ok_; }

 private:
  std::span<const std::byte> data_;
  bool ok_ = true;
};

inline bool all_zero(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace ebb::storage
