#pragma once
// How a call of the C library is taken over. The functions have names of their own and are exported under the C
// library's: its headers declare those with attributes that a definition would have to repeat.
#include <dlfcn.h>

#define EBB_HOOK(result, name, ...)                                                                 \
  extern "C" __attribute__((visibility("default"))) result hook_##name(__VA_ARGS__) __asm__(#name); \
  extern "C" result hook_##name(__VA_ARGS__)

/// Another name of a hook.
#define EBB_ALIAS(name, hook) \
  extern "C"                  \
      __attribute__((visibility("default"), alias(#hook))) decltype(hook_##hook) hook_alias_##name __asm__(#name);

/// The C library's own function of this name, as the type of `hook`.
#define EBB_REAL_AS(name, hook)                      \
  ([]() {                                            \
    static void* found = nullptr;                    \
    if (!found) found = ::dlsym(RTLD_NEXT, #name);   \
    return reinterpret_cast<decltype(&hook)>(found); \
  }())
#define EBB_REAL(name) EBB_REAL_AS(name, hook_##name)
