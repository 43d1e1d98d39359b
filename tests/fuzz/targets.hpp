#pragma once
// What any bytes are given to. With EBB_FUZZ each is a libFuzzer program of its own; the test runs all over the corpus.
#include <cstddef>
#include <cstdint>

namespace ebb::fuzz {

/// Bytes of a segment after its head. They are read as they are, and again with every checksum corrected where a head
/// seems to be, so that the code after the checksums is reached too.
void record(const std::uint8_t* data, std::size_t size);
/// Bytes of an index, in the same two ways.
void index(const std::uint8_t* data, std::size_t size);
/// A zone map, in the same two ways.
void zones(const std::uint8_t* data, std::size_t size);
/// A pool's file in short (pool_image.hpp), in the same two ways.
void pool(const std::uint8_t* data, std::size_t size);
/// What a process and the agent of its pool send each other.
void message(const std::uint8_t* data, std::size_t size);
/// A file of VELOC's, and the name of one.
void veloc(const std::uint8_t* data, std::size_t size);
/// `key`, a zero, text: an option's name and value.
void config(const std::uint8_t* data, std::size_t size);

}  // namespace ebb::fuzz
