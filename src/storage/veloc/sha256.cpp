#include "storage/veloc/sha256.hpp"

#include <dlfcn.h>
#include <new>
#include <optional>
#include <stdexcept>

namespace ebb::storage {
namespace {

/// Functions that libcrypto 1.1 and 3 have alike.
struct Libcrypto {
  void* (*make)() = nullptr;
  void (*free)(void*) = nullptr;
  const void* (*algorithm)() = nullptr;
  int (*begin)(void*, const void*, void*) = nullptr;
  int (*add)(void*, const void*, std::size_t) = nullptr;
  int (*end)(void*, unsigned char*, unsigned*) = nullptr;
};

template <class Function>
bool look_up(void* library, const char* name, Function& to) {
  to = reinterpret_cast<Function>(::dlsym(library, name));
  return to != nullptr;
}

std::optional<Libcrypto> load_libcrypto() {
  for (const char* const name : {"libcrypto.so.3", "libcrypto.so.1.1"}) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);  // stays: other threads may be in it at any time
    Libcrypto found;
    if (library && look_up(library, "EVP_MD_CTX_new", found.make) && look_up(library, "EVP_MD_CTX_free", found.free) &&
        look_up(library, "EVP_sha256", found.algorithm) && look_up(library, "EVP_DigestInit_ex", found.begin) &&
        look_up(library, "EVP_DigestUpdate", found.add) && look_up(library, "EVP_DigestFinal_ex", found.end))
      return found;
  }
  return {};
}

const std::optional<Libcrypto>& libcrypto() {
  static const std::optional<Libcrypto> loaded = load_libcrypto();
  return loaded;
}

void must_succeed(int succeeded) {
  if (succeeded != 1) throw std::logic_error("a SHA-256 sum was added to that had ended");
}

}  // namespace

void Sha256::Free::operator()(void* context) const { libcrypto()->free(context); }

Result<Sha256> Sha256::begin() {
  const auto& library = libcrypto();
  if (!library)
    return Error{Errc::unsupported,
                 "VELOC's checksum files need OpenSSL's libcrypto, which is not installed (Debian's libssl3)"};
  Sha256 one(library->make());
  if (!one.context_) throw std::bad_alloc();
  if (library->begin(one.context_.get(), library->algorithm(), nullptr) != 1)
    return Error{Errc::unsupported, "libcrypto makes no SHA-256 sums here, which VELOC's checksum files need"};
  return one;
}

void Sha256::add(std::span<const std::byte> bytes) {
  must_succeed(libcrypto()->add(context_.get(), bytes.data(), bytes.size()));
}

Sha256Sum Sha256::sum() {
  Sha256Sum sum;
  must_succeed(libcrypto()->end(context_.get(), reinterpret_cast<unsigned char*>(sum.data()), nullptr));
  return sum;
}

}  // namespace ebb::storage
