#pragma once
// The histories that a file is stored in: one for its record, one for each piece, one that its writer holds.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ebbtide/checkpoint.hpp"

namespace ebb::files {

/// Between a file's name and its version, in the names of its histories. Such names are the store's own.
inline constexpr std::string_view kMark = kReservedInNames;

struct FileName {
  std::string name;
  Version version = 0;

  /// "model/.ebbtide-file/3/"
  std::string prefix() const;
  std::string record() const { return prefix() + "record"; }
  /// While a process writes the file, a reservation of nothing is there, so that no other thread does.
  std::string writer() const { return prefix() + "writer"; }
  std::string piece(std::uint64_t index) const { return prefix() + std::to_string(index); }
  /// "version 3 of file "model"", for messages.
  std::string text() const;
};

/// A history of a file: which file's, and what of it ("record", "writer", or a piece's number).
struct FileHistory {
  FileName file;
  std::string part;
};

/// What a history's name says; nothing: it is none of a file.
std::optional<FileHistory> parse_history(std::string_view history);

}  // namespace ebb::files
