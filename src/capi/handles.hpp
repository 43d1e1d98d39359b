#pragma once
// What the opaque handles are. Each begins with its kind, so that a handle cast to another kind is refused, not
// dereferenced.
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "capi/guard.hpp"
#include "ebbtide/store.hpp"

namespace ebb::capi {

enum class Kind : std::uint32_t {
  store = 0x65626273,
  future = 0x65626266,
  reservation = 0x65626272,
  loan = 0x6562626c,
  file = 0x65626246,
  group = 0x65626267
};

struct Handle {
  explicit Handle(Kind kind) : kind(kind) {}
  Kind kind;
};

}  // namespace ebb::capi

// A store is its own history; a view has `history` alone. A group owns its member's store.
struct ebb_store : ebb::capi::Handle {
  static constexpr auto kKind = ebb::capi::Kind::store;
  explicit ebb_store(ebb::Store opened) : Handle(kKind), own(std::move(opened)), root(&*own), history(*root) {}
  explicit ebb_store(ebb::Store* of_group) : Handle(kKind), root(of_group), history(*root) {}
  explicit ebb_store(ebb::History view) : Handle(kKind), history(std::move(view)) {}
  std::optional<ebb::Store> own;
  ebb::Store* root = nullptr;
  ebb::History history;
};

struct ebb_future : ebb::capi::Handle {
  static constexpr auto kKind = ebb::capi::Kind::future;
  ebb_future() : Handle(kKind) {}
  std::variant<ebb::Future, ebb::Snapshot> future;
};

struct ebb_reservation : ebb::capi::Handle {
  static constexpr auto kKind = ebb::capi::Kind::reservation;
  ebb_reservation() : Handle(kKind) {}
  std::optional<ebb::Reservation> held;  // none once committed or abandoned
  std::optional<ebb::Reservation> kept;  // committed, and its memory is held until the handle is freed
};

struct ebb_loan : ebb::capi::Handle {
  static constexpr auto kKind = ebb::capi::Kind::loan;
  ebb_loan() : Handle(kKind) {}
  std::optional<ebb::Loan> held;  // none once released
  std::optional<ebb::Loan> kept;  // released, and its memory is held until the handle is freed
};

struct ebb_file : ebb::capi::Handle {
  static constexpr auto kKind = ebb::capi::Kind::file;
  ebb_file() : Handle(kKind) {}
  std::optional<ebb::File> file;
};

namespace ebb::capi {

template <class T>
bool valid(const T* handle) noexcept {
  return handle && static_cast<const Handle*>(handle)->kind == T::kKind;
}

inline constexpr const char* kNoStore = "the first argument is NULL or not the handle of an open store or history";
inline constexpr const char* kNoFuture = "the future is NULL or another kind of handle";

/// Deletes the handle and clears the pointer to it.
template <class H>
ebb_status free_handle(H** handle, const char* what) noexcept {
  return guarded([&]() -> ebb_status {
    if (!handle || !*handle) return EBB_OK;
    if (!valid(*handle)) return refuse(what);
    delete std::exchange(*handle, nullptr);
    return EBB_OK;
  });
}

/// Below 0: none, as long as it takes. The caller has refused NaN already.
inline std::optional<Seconds> timeout_of(double seconds) {
  return seconds < 0 ? std::nullopt : std::optional(Seconds(seconds));
}

}  // namespace ebb::capi
