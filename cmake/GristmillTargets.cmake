# One library per room, one test executable per room; flags that every target of ours shares.

add_library(gristmill_flags INTERFACE)
target_compile_features(gristmill_flags INTERFACE cxx_std_20)
target_compile_options(gristmill_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                       -Wno-sign-conversion -Werror)
if(GRISTMILL_MARCH)
  target_compile_options(gristmill_flags INTERFACE -march=${GRISTMILL_MARCH})
endif()
# GCC 12 warns of overlapping copies in its own std::string operator+ (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(gristmill_flags INTERFACE -Wno-restrict)
endif()
if(GRISTMILL_SANITIZE)
  target_compile_options(gristmill_flags INTERFACE -fsanitize=${GRISTMILL_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(gristmill_flags INTERFACE -fsanitize=${GRISTMILL_SANITIZE})
endif()
if(GRISTMILL_FUZZ)
  # Coverage, which the fuzzer steers by; it keeps loops from being vectorised, which clang would warn of.
  target_compile_options(gristmill_flags INTERFACE -fsanitize=fuzzer-no-link -Wno-pass-failed)
endif()

# ThreadSanitizer maps its shadow at fixed addresses, which the kernel's randomisation may have taken:
# whatever is run in or after the build (finding the tests, the tests) runs without it.
if(GRISTMILL_SANITIZE MATCHES thread)
  find_program(GRISTMILL_SETARCH setarch)
  if(GRISTMILL_SETARCH)
    set(_no_randomisation ${GRISTMILL_SETARCH} ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
    execute_process(COMMAND ${_no_randomisation} true RESULT_VARIABLE _refused OUTPUT_QUIET ERROR_QUIET)
    if(_refused EQUAL 0)
      set(CMAKE_CROSSCOMPILING_EMULATOR ${_no_randomisation})
    endif()
  endif()
endif()

# Where extension modules and gristmill-worker go: beside the Python sources, or into a package folder
# of this build tree's own.
if(GRISTMILL_INPLACE)
  set(GRISTMILL_PACKAGE_DIR "${PROJECT_SOURCE_DIR}/python/gristmill")
else()
  set(GRISTMILL_PACKAGE_DIR "${PROJECT_BINARY_DIR}/python/gristmill")
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(GRISTMILL_CCACHE ccache)
if(GRISTMILL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${GRISTMILL_CCACHE})
endif()

# gristmill_room(NAME sources…): static library gristmill_NAME, alias gristmill::NAME, repo-rooted
# includes.
function(gristmill_room name)
  add_library(gristmill_${name} STATIC ${ARGN})
  add_library(gristmill::${name} ALIAS gristmill_${name})
  target_link_libraries(gristmill_${name} PRIVATE $<BUILD_INTERFACE:gristmill_flags>)
  target_compile_features(gristmill_${name} PUBLIC cxx_std_20)
  target_include_directories(gristmill_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/gristmill>)
  set_target_properties(gristmill_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY GRISTMILL_ROOMS ${name})
endfunction()
