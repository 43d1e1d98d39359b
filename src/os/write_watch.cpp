#include "os/write_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "os/files.hpp"
#include "os/mprotect_watch.hpp"
#include "os/pages.hpp"
#include "os/sys_result.hpp"
#include "os/uffd_watch.hpp"

namespace ebb::os {
namespace {

// A line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0, end = 0;
  std::string access, name;
};

std::optional<Mapping> mapping_of(const std::string& line) {
  Mapping found;
  char access[5] = {};
  int named = 0;
  if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %n", &found.begin, &found.end, access, &named) < 3) return {};
  found.access = access;
  found.name = line.substr(static_cast<std::size_t>(named));
  return found;
}

bool is_shared_memory(const Mapping& mapping) {
  if (mapping.access[3] != 's') return false;
  for (const char* const known : {"/dev/zero (deleted)", "/memfd:", "/SYSV", "/dev/shm/"}) {
    if (mapping.name.starts_with(known)) return true;
  }
  return false;
}

// What forbids watching a mapping.
std::optional<Error> why_not(const Mapping& mapping) {
  const auto refused = [&](Errc code, const std::string& why) {
    return Error{code, (mapping.name.empty() ? "memory" : "\"" + mapping.name + "\"") + " is not watched: " + why};
  };
  if (mapping.name.starts_with("[stack")) return refused(Errc::unsupported, "it is a stack");
  if (mapping.name.starts_with("/") && !is_shared_memory(mapping)) {
    return refused(Errc::unsupported, "it is a file, and only anonymous and shared memory is");
  }
  if (mapping.access[2] == 'x') return refused(Errc::unsupported, "it is code");
  if (!mapping.access.starts_with("rw")) return refused(Errc::invalid_argument, "it is not readable and writable");
  return {};
}

WatchAbility ability_of(WatchForm form) {
  WatchAbility ability{.form = form};
  auto opened = SystemWriteWatches().open(form);
  if (!opened) {
    ability.note = opened.error().message;
    return ability;
  }
  auto page = map_pages(kBlock);
  if (!page) {
    ability.note = page.error().message;
    return ability;
  }
  // The kernel may have a form that a container forbids in part, so it is tried as far as one thread can.
  const PageRange range{*page, kBlock};
  std::vector<PageRange> written;
  Result<void> tried = (*opened)->watch(range);
  if (tried) tried = (*opened)->arm(range);
  if (tried && form == WatchForm::userfaultfd_async) {
    *static_cast<volatile std::byte*>(*page) = std::byte{1};
    tried = (*opened)->take_written(range, written);
    if (tried && written != std::vector{range}) tried = Error{Errc::unsupported, "it did not note a write"};
  }
  if (tried) tried = (*opened)->disarm(range);
  (*opened)->forget(range);
  ability.user_faults_only = (*opened)->user_faults_only();
  opened = Error{};
  unmap_pages(*page, kBlock);
  ability.usable = static_cast<bool>(tried);
  if (!tried) {
    ability.note = tried.error().message;
  } else if (ability.user_faults_only) {
    ability.note = form == WatchForm::mprotect ? "" : "vm.unprivileged_userfaultfd is 0: ";
    ability.note += "a system call that writes to armed memory, such as read(), fails with EFAULT";
  }
  return ability;
}

}  // namespace

std::string describe(PageRange range) {
  char text[64];
  std::snprintf(text, sizeof text, "%zu bytes at %p", range.bytes, static_cast<void*>(range.begin));
  return text;
}

std::string_view name_of(WatchForm form) noexcept {
  switch (form) {
    case WatchForm::userfaultfd_async: return "userfaultfd asynchronous";
    case WatchForm::userfaultfd_sync: return "userfaultfd synchronous";
    case WatchForm::mprotect: return "mprotect";
  }
  return "unknown";
}

Error WatchResult::error() const {
  std::string message = range_.begin != nullptr ? describe(range_) + " " + text_ : text_;
  if (error_ != 0) message += ": " + describe_errno(error_);
  return {code_, std::move(message)};
}

WatchResult check_pages(PageRange range) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  if (begin % kBlock == 0 && range.bytes % kBlock == 0 && range.bytes != 0 && range.bytes <= UINTPTR_MAX - begin)
    return {};
  return {Errc::invalid_argument, "are not whole pages of 4096 bytes", range};
}

Result<void> WriteWatch::watch_all(std::span<const PageRange> ranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    auto watched = watch(ranges[i]);
    if (watched) continue;
    for (const PageRange& range : ranges.first(i)) forget(range);
    return watched;
  }
  return {};
}

Result<void> check_watchable(PageRange range) {
  auto joined = joined_watchable({&range, 1}, 0);
  return joined ? Result<void>() : joined.error();
}

Result<std::vector<PageRange>> joined_watchable(std::span<const PageRange> ranges, std::size_t gap) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return Error{Errc::io_error, "/proc/self/maps cannot be read"};
  std::vector<Mapping> mappings;
  for (std::string line; std::getline(maps, line);)
    if (auto mapping = mapping_of(line)) mappings.push_back(std::move(*mapping));
  const auto check = [&](PageRange range) -> Result<void> {
    auto at = reinterpret_cast<std::uintptr_t>(range.begin);
    const std::uintptr_t end = at + range.bytes;
    for (auto one = std::ranges::upper_bound(mappings, at, {}, &Mapping::end);
         at < end && one != mappings.end() && one->begin <= at; ++one) {
      if (auto error = why_not(*one)) return std::move(*error);
      at = one->end;
    }
    if (at >= end) return {};
    return Error{Errc::invalid_argument, describe(range) + " are not all mapped"};
  };
  std::vector<PageRange> joined;
  for (const PageRange& range : ranges) {
    if (auto whole = check_pages(range); !whole) return whole.error();
    if (auto good = check(range); !good) return good.error();
    if (!joined.empty()) {
      PageRange& last = joined.back();
      const auto between = static_cast<std::size_t>(range.begin - last.end());
      if (between <= gap && check({last.end(), between})) {
        last.bytes += between + range.bytes;
        continue;
      }
    }
    joined.push_back(range);
  }
  return joined;
}

std::vector<WatchAbility> SystemWriteWatches::abilities() {
  std::vector<WatchAbility> all;
  for (const WatchForm form : kWatchForms) all.push_back(ability_of(form));
  return all;
}

Result<std::unique_ptr<WriteWatch>> SystemWriteWatches::open(WatchForm form) {
  if (::sysconf(_SC_PAGESIZE) != static_cast<long>(kBlock)) {
    return Error{Errc::unsupported, "writes are watched on systems with pages of 4096 bytes"};
  }
  if (form == WatchForm::mprotect) return MprotectWatch::open();
  return UffdWatch::open(form);
}

}  // namespace ebb::os
