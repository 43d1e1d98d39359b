#pragma once
#include <functional>
#include <vector>

#include "storage/admin/inspect.hpp"

namespace ebb::storage {

/// Whether a record is a piece of a snapshot.
bool is_snapshot_piece(const Inspected& record);

/// The pieces that no map has a zone in, by index in `records`: a process was killed before it wrote the map, or the
/// last map that needed them is gone. `goes(i)`: the record does not count. Where a map cannot be read, all pieces of
/// its history count as named.
std::vector<std::size_t> unnamed_pieces(os::Files& files, const std::filesystem::path& directory,
                                        const std::vector<Inspected>& records,
                                        const std::function<bool(std::size_t)>& goes);

}  // namespace ebb::storage
