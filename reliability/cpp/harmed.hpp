#pragma once
// A store whose bytes were harmed on purpose, beside what it was.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reliability/cpp/judge.hpp"
#include "reliability/cpp/script.hpp"
#include "reliability/cpp/subject.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/doubles/memory_files.hpp"

namespace ebb::trials {

using doubles::FileTree;
using doubles::MemoryFiles;

/// A store that a script left. `closed`: well; else as a process that was killed before its last close left it.
struct Image {
  Script script;
  FileTree tree;
  Seen seen;  // all that it offers
  storage::ScannedStore scanned;
  bool closed = false;
  std::vector<std::pair<std::string, std::uint64_t>> files;  // name and length

  std::shared_ptr<MemoryFiles> open() const { return std::make_shared<MemoryFiles>(tree); }
};
Image make_image(std::uint64_t seed, const ScriptOptions& how, bool closed);

/// What `ebbtide verify` names, of all that it looks at.
struct NamedDamage {
  std::string file;
  std::uint64_t offset = 0;
  std::optional<std::string> history;
  std::optional<Version> version;
};
using Named = std::vector<NamedDamage>;
Result<Named> verify_all(MemoryFiles& files);

/// Opens it (`readonly`, or to be written, and writes one more), reads everything, and compares with what it was. Of
/// what is missing there must be a name, if `named` is given.
Verdict compare(const Image& image, const std::shared_ptr<MemoryFiles>& files, Layer layer, bool readonly,
                const Named* named);

}  // namespace ebb::trials
