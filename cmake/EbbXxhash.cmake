# Target `ebb_xxhash`: the header of xxHash alone, compiled into what includes it.
add_library(ebb_xxhash INTERFACE)
find_path(EBB_XXHASH_INCLUDE xxhash.h)
mark_as_advanced(EBB_XXHASH_INCLUDE)
if(NOT EBB_XXHASH_INCLUDE)
  message(FATAL_ERROR "xxhash.h was not found: install libxxhash-dev (Debian's name of the package), or say where it "
                      "lies with -DEBB_XXHASH_INCLUDE=/its/folder")
endif()
target_compile_definitions(ebb_xxhash INTERFACE XXH_INLINE_ALL)
target_include_directories(ebb_xxhash SYSTEM INTERFACE ${EBB_XXHASH_INCLUDE})
