#include "storage/scan/pairing.hpp"

#include <cerrno>
#include <optional>
#include <string>

#include "storage/file_io.hpp"
#include "storage/scan/store_directory.hpp"

namespace ebb::storage {
namespace {

using Path = std::filesystem::path;

constexpr const char* kPairFile = "pair";
constexpr std::size_t kMostMark = 8192;

// In a local directory, of the mark of one of several shared ones.
std::string mark_of(const Path& shared) { return std::string(kPairFile) + "." + shared.filename().string(); }

std::string text_of(const Uuid& id) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : id) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

constexpr std::string_view kLocal = "local", kShared = "shared";

// The partner that a directory is marked with.
struct Mark {
  std::string store;  // its id
  std::string path;   // where it was
  std::string side;   // what the directory itself is: kLocal or kShared
};

// As every process finds it, whatever its working directory.
Path absolute_path(const Path& directory) {
  std::error_code failed;
  Path path = std::filesystem::absolute(directory, failed).lexically_normal();
  return failed ? directory : path;
}

Result<std::optional<Mark>> read_mark(os::Files& files, const Path& path) {
  const auto opened = files.open(path, os::Open::read, false);
  if (!opened && opened.error == ENOENT) return std::optional<Mark>();
  if (!opened) return file_error(path, "opening it", opened.error);
  const os::File file(files, static_cast<int>(opened.value), path.string(), false);
  std::string text(kMostMark, '\0');
  const auto got = read_whole(files, file.fd(), std::as_writable_bytes(std::span(text)), 0);
  if (!got) return file_error(path, "reading it", got.error);
  text.resize(static_cast<std::size_t>(got.value));
  const auto first = text.find('\n'), second = first == text.npos ? first : text.find('\n', first + 1);
  if (first != 2 * sizeof(Uuid) || second == text.npos)
    return Error{Errc::damaged, path.string() + ": it does not name a store"};
  Mark mark{text.substr(0, first), text.substr(first + 1, second - first - 1), {}};
  mark.side = text.substr(second + 1, text.find('\n', second + 1) - second - 1);
  if (mark.side != kLocal && mark.side != kShared)
    return Error{Errc::damaged, path.string() + ": it does not say which side this directory is"};
  return std::optional(std::move(mark));
}

// Under another name first, so that the file is always whole. A rename whose reply was lost has happened.
Result<void> write_mark(os::Files& files, const Path& path, const std::string& partner, const Path& where,
                        std::string_view side) {
  const Path directory = path.parent_path(), beside = path.string() + ".new";
  os::SysResult opened = files.open(beside, os::Open::create, false);
  if (!opened && opened.error == EEXIST) {
    static_cast<void>(files.remove(beside));
    opened = files.open(beside, os::Open::create, false);
  }
  if (!opened) return file_error(beside, "making it", opened.error);
  {
    const os::File file(files, static_cast<int>(opened.value), beside.string(), false);
    const std::string text = partner + "\n" + absolute_path(where).string() + "\n" + std::string(side) + "\n";
    if (const auto put = write_whole(files, file.fd(), std::as_bytes(std::span(text)), 0); !put)
      return file_error(beside, "writing it", put.error);
    if (const auto synced = files.sync(file.fd()); !synced) return file_error(beside, "syncing it", synced.error);
  }
  const auto named = files.rename(beside, path);
  os::FileStatus there;
  const bool happened = named || (named.error == ENOENT && files.status(path, there));
  if (!happened) return file_error(path, "renaming it", named.error);
  if (const auto synced = files.sync_directory(directory); !synced)
    return file_error(directory, "syncing the directory", synced.error);
  return {};
}

// As far as that is possible: a mark that could not be written wholly may be there all the same.
void put_back(os::Files& files, const Path& directory, const std::optional<Mark>& before) {
  if (before)
    static_cast<void>(write_mark(files, directory / kPairFile, before->store, before->path, before->side));
  else
    static_cast<void>(files.remove(directory / kPairFile));
}

Result<Uuid> id_of(os::Files& files, const Path& directory) {
  const auto head = find_store(files, directory);
  if (!head) return head.error();
  if (!*head) return Error{Errc::not_a_store, directory.string() + ": there is no store in it"};
  return (*head)->store;
}

// What each of two directories says of the other.
struct Marks {
  Uuid ours{}, theirs{};  // ids
  std::optional<Mark> our_mark, their_mark;

  bool knows_us() const { return their_mark && their_mark->store == text_of(ours); }
  bool knows_them(Pairing how) const {
    return our_mark ? our_mark->store == text_of(theirs) : how != Pairing::of_two && knows_us();
  }
};

Result<Marks> marks_of(os::Files& files, const Path& local, const Path& shared) {
  const auto ours = id_of(files, local), theirs = id_of(files, shared);
  if (!ours) return ours.error();
  if (!theirs) return theirs.error();
  auto our_mark = read_mark(files, local / kPairFile), their_mark = read_mark(files, shared / kPairFile);
  if (!our_mark) return our_mark.error();
  if (!their_mark) return their_mark.error();
  return Marks{*ours, *theirs, std::move(*our_mark), std::move(*their_mark)};
}

Result<void> check(const Marks& marks, const PairedDirectory& local, const PairedDirectory& shared, Pairing how) {
  const bool known = marks.knows_them(how);
  const auto refused = [&](const std::string& why) {
    return Error{Errc::invalid_argument,
                 "shared=\"" + shared.path.string() + "\" and directory=\"" + local.path.string() + "\" " + why};
  };
  for (const auto& [one, mark, side] :
       {std::tie(local, marks.our_mark, kLocal), std::tie(shared, marks.their_mark, kShared)})
    if (mark && !one.empty && mark->side != side)
      return refused("are the wrong way round, or of two stores: the former is \"" + one.path.string() + "\"");
  if (local.empty) return {};
  if (marks.our_mark && !known)
    return refused("do not belong together: the checkpoints of the latter go to \"" + marks.our_mark->path +
                   "\". Name that one, or an empty directory, or remove the file " + (local.path / kPairFile).string() +
                   " to send them to an empty shared directory");
  if (!known && !shared.empty)
    return refused(
        "are stores of two runs: both have checkpoints. Name an empty directory to continue from the "
        "shared one, or an empty shared directory to send the local checkpoints there");
  if (known && !marks.their_mark && !shared.empty)
    return refused("do not belong together any more: without the file " + (shared.path / kPairFile).string() +
                   " the shared one could be written to alone. Name an empty directory to continue from it");
  if (known && marks.their_mark && !marks.knows_us())
    return refused("do not belong together any more: the run was continued in \"" + marks.their_mark->path +
                   "\", and the latter has what was before. Name an empty directory to continue from the shared one");
  return {};
}

// A directory that was moved is named anew.
bool as_it_is(const Mark& mark, const Path& partner) { return mark.path == absolute_path(partner).string(); }

}  // namespace

Result<void> check_pair(os::Files& files, const PairedDirectory& local, const PairedDirectory& shared, Pairing how) {
  const auto marks = marks_of(files, local.path, shared.path);
  return marks ? check(*marks, local, shared, how) : marks.error();
}

Result<void> pair_directories(os::Files& files, const PairedDirectory& local, const PairedDirectory& shared,
                              Pairing how) {
  const auto marks = marks_of(files, local.path, shared.path);
  if (!marks) return marks.error();
  if (auto checked = check(*marks, local, shared, how); !checked || how == Pairing::readonly) return checked;
  const auto mark_shared = [&]() -> Result<void> {
    if (marks->knows_us() && as_it_is(*marks->their_mark, local.path)) return {};
    auto marked = write_mark(files, shared.path / kPairFile, text_of(marks->ours), local.path, kShared);
    if (!marked) put_back(files, shared.path, marks->their_mark);
    return marked;
  };
  const auto mark_local = [&]() -> Result<void> {
    const Path path = local.path / (how == Pairing::of_several ? mark_of(shared.path) : kPairFile);
    const auto mark = how == Pairing::of_several ? read_mark(files, path) : Result(marks->our_mark);
    const std::string theirs = text_of(marks->theirs);
    if (mark && *mark && (*mark)->store == theirs && as_it_is(**mark, shared.path)) return {};
    return write_mark(files, path, theirs, shared.path, kLocal);
  };
  // The one without a checkpoint first: if that is all that happens, the other one is still what it was.
  auto marked = local.empty ? mark_local() : mark_shared();
  if (marked) marked = local.empty ? mark_shared() : mark_local();
  return marked;
}

bool is_pair_file(std::string_view name) { return name == kPairFile || name.starts_with("pair."); }

Result<void> refuse_half_a_pair(os::Files& files, const Path& directory) {
  const auto mark = read_mark(files, directory / kPairFile);
  if (!mark) return mark.error();
  if (!*mark) return {};
  const std::string own = "\"" + directory.string() + "\"", other = "\"" + (*mark)->path + "\"";
  const std::string what = (*mark)->side == kLocal
                               ? "the local directory of a store whose shared directory is " + other +
                                     ": name that too (shared=" + other + ")"
                               : "the shared directory of a store whose local directory was " + other +
                                     ": name that, or an empty directory, as the local one, and shared=" + own;
  return Error{Errc::invalid_argument, "directory=" + own + " is " + what + ", or open it readonly. Remove the file " +
                                           (directory / kPairFile).string() +
                                           " to write to it alone from now on: the two are then never one store again"};
}

}  // namespace ebb::storage
