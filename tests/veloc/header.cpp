// The headers of C++ as C++17.
#include <veloc.h>
#include <veloc.hpp>
#include <veloc/cache.hpp>
#if __has_include(<boost/archive/binary_oarchive.hpp>)
#include <veloc/boost.hpp>
#endif
#if __has_include(<cereal/archives/binary.hpp>)
#include <veloc/cereal.hpp>
#endif
#if __has_include(<bitsery/bitsery.h>)
#include <veloc/bitsery.hpp>
#endif

static_assert(__cplusplus < 202000L);
int veloc_headers() { return VELOC_Mem_protect(0, nullptr, 0, 0); }
