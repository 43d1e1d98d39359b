# ebb_add_test(name source... [LIBS lib...] [TIMEOUT seconds] [ALONE] [APART pattern...]): a GoogleTest program. For ctest each
# of its tests is a test, with the label `googletest`, or `googletest_gpu` if its name says that it needs a GPU or the
# double of one; tools/googletest.py runs many in one process, but for those that change their process (limits, signals,
# environment, children), whose names APART gives. ALONE: nothing else meanwhile. Target `ebb_tests` builds all of them.
include(GoogleTest)
set(EBB_GOOGLETEST "" CACHE PATH "GoogleTest's sources, to be built here; where there are none, an installed one is used")
if(EXISTS ${EBB_GOOGLETEST}/CMakeLists.txt)
  set(INSTALL_GTEST OFF)
  add_subdirectory(${EBB_GOOGLETEST} ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
else()
  find_package(GTest REQUIRED)
endif()
add_custom_target(ebb_tests)

# gcc's thread sanitizer before 14 cannot start where the kernel randomises more address bits than it knows.
set(ebb_test_launcher)
if(EBB_SANITIZE STREQUAL thread)
  execute_process(COMMAND setarch ${CMAKE_HOST_SYSTEM_PROCESSOR} -R true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
  if(refused EQUAL 0)
    set(ebb_test_launcher setarch ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
  endif()
endif()

# The rooms are compiled as they always are. The tests are compiled quickly: where their own behaviour is undefined, the
# program traps, which takes a third less time to compile than a report; the rooms still report.
set(ebb_test_options -O1)
if(EBB_SANITIZE)
  set(ebb_test_options -O0)
endif()
if(EBB_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND ebb_test_options -fsanitize-undefined-trap-on-error)
endif()

set(ebb_gpu_tests *cuda*:*Cuda*:*CUDA*:*gpu*:*Gpu*:*GPU*)

function(ebb_add_test name)
  cmake_parse_arguments(arg "ALONE" "TIMEOUT" "LIBS;APART" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main GTest::gmock)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${ebb_test_options})
  if(ebb_test_launcher)
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR "${ebb_test_launcher}")
  endif()
  add_dependencies(ebb_tests ${name})
  set(discover ${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  set(properties TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_ALONE})
  gtest_discover_tests(${discover} TEST_FILTER -${ebb_gpu_tests} PROPERTIES ${properties} LABELS googletest)
  gtest_discover_tests(${discover} TEST_FILTER ${ebb_gpu_tests} PROPERTIES ${properties} LABELS googletest_gpu)
  list(JOIN ebb_test_launcher " " launcher)
  list(JOIN arg_APART " " apart)
  string(CONCAT line "{\"path\": \"$<TARGET_FILE:${name}>\", \"launcher\": \"${launcher}\", \"timeout\": ${arg_TIMEOUT}, "
                     "\"alone\": $<IF:$<BOOL:${arg_ALONE}>,true,false>, \"apart\": \"${apart}\"}\n")
  set_property(GLOBAL APPEND_STRING PROPERTY ebb_googletests "${line}")
endfunction()

# Called when every test is known: writes googletests.txt, a line a program, for tools/googletest.py.
function(ebb_list_tests)
  get_property(lines GLOBAL PROPERTY ebb_googletests)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/googletests.txt CONTENT "${lines}")
endfunction()
