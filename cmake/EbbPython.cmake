# Python, and nanobind through it, so that a plain CMake build finds what the virtual environment has.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
if(NOT nanobind_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE found
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(found)
    set(nanobind_DIR ${found} CACHE PATH "nanobind's CMake files")
  endif()
endif()
find_package(nanobind CONFIG REQUIRED)
