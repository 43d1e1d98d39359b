// The store's calls for files.
#include "files/open_file.hpp"

namespace ebb {

using files::Directory;
using files::FileName;

namespace {

constexpr std::size_t kMaxName = 65'000;

}  // namespace

Result<File> Store::create_file(std::string name, Version version, Seconds timeout) {
  if (auto refused = refusal()) return *refused;
  if (auto taken = engine_->check_files_sent(); !taken) return taken.error();
  if (name.empty() || name.size() > kMaxName)
    return Error{Errc::invalid_argument, "a file's name has 1 to " + std::to_string(kMaxName) +
                                             " bytes, and this one has " + std::to_string(name.size())};
  if ((name + "/").find(files::kMark) != name.npos)
    return Error{Errc::invalid_argument, "a file's name has \"" + std::string(files::kMark) +
                                             "\" in it, which the store uses itself: expected a name without it, "
                                             "given: \"" +
                                             name + "\""};
  const FileName file{std::move(name), version};
  Directory directory(engine_);
  auto writer = directory.reserve_writer(file);
  if (!writer && writer.error().code == Errc::version_exists)
    return Error{Errc::version_exists, file.text() + " is being written"};
  if (!writer) return writer.error();
  const auto there = directory.record_of(file);
  if (there) return Error{Errc::version_exists, file.text() + " exists"};
  if (there.error().code != Errc::unknown_version) return there.error();
  if (auto dropped = directory.drop_left_over(file); !dropped) return dropped.error();
  directory.begin_retention();
  const files::PieceLayout layout = directory.layout();
  return File(std::make_unique<files::OpenFile>(std::move(directory), file, layout, std::move(*writer), timeout));
}

Result<File> Store::open_file(std::string name, std::optional<Version> version) {
  if (auto refused = refusal()) return *refused;
  Directory directory(engine_);
  if (!version) {
    const auto all = files(name);
    if (!all) return all.error();
    if (all->empty()) return Error{Errc::unknown_version, "no file \"" + name + "\" was written and closed"};
    version = all->back().version;
  }
  const FileName file{std::move(name), *version};
  const auto record = directory.record_of(file);
  if (!record) return record.error();
  return File(std::make_unique<files::OpenFile>(std::move(directory), file, *record));
}

Result<std::vector<FileInfo>> Store::files(std::optional<std::string> name) {
  if (auto refused = refusal()) return *refused;
  const Directory directory(engine_);
  const auto all = directory.parts(name);
  if (!all) return all.error();
  std::vector<FileInfo> found;
  for (const auto& [key, parts] : *all) {
    const auto record = directory.record_of({key.first, key.second});
    if (record)
      found.push_back({key.first, key.second, record->bytes});
    else if (record.error().code != Errc::unknown_version)
      return record.error();
  }
  return found;
}

Result<void> Store::drop_file(std::string name, Version version) {
  if (auto refused = refusal()) return *refused;
  const FileName file{std::move(name), version};
  const Directory directory(engine_);
  const auto all = directory.parts(file.name);
  if (!all) return all.error();
  const auto found = all->find({file.name, version});
  if (found == all->end() || std::ranges::find(found->second, "record") == found->second.end())
    return Error{Errc::unknown_version, file.text() + " is not there: no such file was written and closed"};
  return directory.drop(file, found->second);
}

}  // namespace ebb
