# Target `ebb_cuda`: the CUDA runtime, linked statically, and EBB_HAVE_CUDA=1 where a toolkit (nvcc) is found; nothing
# otherwise. The driver is never linked: what is built here loads and works on a machine without one.
set(EBB_CUDA ON CACHE STRING "Use GPUs through CUDA: ON, where its toolkit is found; REQUIRED, or do not build; OFF")
set(ebb_without_cuda STATUS)
if(EBB_CUDA STREQUAL "REQUIRED")
  set(ebb_without_cuda FATAL_ERROR)
endif()
add_library(ebb_cuda INTERFACE)
if(EBB_CUDA)
  find_package(CUDAToolkit 12.0 QUIET)
endif()
set(EBB_CUDA_FOUND FALSE)
if(EBB_CUDA AND TARGET CUDA::cudart_static)
  set(EBB_CUDA_FOUND TRUE)
  message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
  target_compile_definitions(ebb_cuda INTERFACE EBB_HAVE_CUDA=1)
  target_link_libraries(ebb_cuda INTERFACE CUDA::cudart_static rt ${CMAKE_DL_LIBS})
else()
  message(${ebb_without_cuda} "CUDA: not used; caches are in ordinary memory alone")
endif()

# ebb_add_cuda(target source.cu ABSENT source.cpp): the kernels of one file, compiled by nvcc for every architecture
# that it has from Turing to Hopper and, for later ones, as PTX; without nvcc the other source in its place. A custom
# command, because the flags of our C++ (warnings, sanitizers) are not nvcc's.
function(ebb_add_cuda target source)
  cmake_parse_arguments(arg "" "ABSENT" "" ${ARGN})
  set(flags -O3 -std=c++20 -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR} -ccbin ${CMAKE_CXX_COMPILER}
            -Xcompiler -fPIC --cudart static)
  # It may be missing where the runtime is there, or refuse a compiler that is newer than it knows.
  if(CUDAToolkit_NVCC_EXECUTABLE AND NOT DEFINED EBB_NVCC_WORKS)
    execute_process(
      COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${flags} -gencode arch=compute_75,code=sm_75
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${CMAKE_CURRENT_BINARY_DIR}/nvcc_works.o
      RESULT_VARIABLE failed OUTPUT_VARIABLE why ERROR_VARIABLE why)
    if(failed EQUAL 0)
      set(EBB_NVCC_WORKS ON CACHE INTERNAL "nvcc compiles our kernels with this compiler")
    endif()
  endif()
  if(NOT EBB_NVCC_WORKS)
    message(${ebb_without_cuda} "CUDA: no nvcc that works; commit(check=True) is unsupported on a GPU. ${why}")
    target_sources(${target} PRIVATE ${arg_ABSENT})
    return()
  endif()
  set(architectures)
  foreach(each 75 80 86 89 90)
    list(APPEND architectures -gencode arch=compute_${each},code=sm_${each})
  endforeach()
  list(APPEND architectures -gencode arch=compute_90,code=compute_90)
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${flags} ${architectures} -MD -MF ${object}.d
            -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPFILE ${object}.d
    COMMENT "Compiling ${source} with nvcc"
    VERBATIM)
  target_sources(${target} PRIVATE ${object})
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endfunction()
