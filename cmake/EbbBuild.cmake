# Language level, warnings, include roots and sanitizers, for every room alike.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")  # CMake's own choice
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # -O3 makes only src/storage/format/checksum.cpp faster, which has it
endif()
find_program(EBB_CCACHE ccache)
mark_as_advanced(EBB_CCACHE)
foreach(language C CXX)
  if(EBB_CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${EBB_CCACHE})
  endif()
endforeach()
# Most of a file's compile time goes into headers, so several files are compiled at a time. Off: each file alone.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several source files at a time")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 10 CACHE STRING "How many")
set(CMAKE_UNITY_BUILD_RELOCATABLE ON)  # so that a compiler cache serves another checkout too
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the rooms end in shared libraries
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
link_libraries(Threads::Threads)
include_directories(${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
add_compile_definitions(_FILE_OFFSET_BITS=64 _GNU_SOURCE)
add_compile_options(-Wall -Wextra)
if(EBB_WERROR)
  add_compile_options(-Werror)
endif()

# ebb_portable(target): with EBB_PORTABLE it carries its libstdc++, which nothing else in the process sees. libgcc stays
# shared: since glibc 2.35 the static one needs that version, and every system has the other.
function(ebb_portable target)
  if(EBB_PORTABLE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/portable.c)
    target_link_options(${target} PRIVATE -static-libstdc++
                        -Wl,--exclude-libs,libstdc++.a:liburing.a:libcudart_static.a)
  endif()
endfunction()

set(ebb_sanitize_flags)
if(EBB_SANITIZE)
  if(NOT EBB_SANITIZE MATCHES "^(thread|address|undefined|address,undefined)$")
    message(FATAL_ERROR "EBB_SANITIZE is '${EBB_SANITIZE}'; it may be thread, address, undefined or address,undefined")
  endif()
  # Reports name functions without -g, and less is compiled; CXXFLAGS=-g1 adds the lines.
  set(ebb_sanitize_flags -fsanitize=${EBB_SANITIZE} -fno-omit-frame-pointer -O1 -UNDEBUG)
  if(EBB_SANITIZE MATCHES undefined)
    list(APPEND ebb_sanitize_flags -fno-sanitize-recover=undefined)
  endif()
  if(EBB_SANITIZE STREQUAL thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND ebb_sanitize_flags -Wno-tsan)  # fences are not modelled; that warning is no error of ours
  endif()
  add_compile_options(${ebb_sanitize_flags})
  add_link_options(-fsanitize=${EBB_SANITIZE})
endif()
