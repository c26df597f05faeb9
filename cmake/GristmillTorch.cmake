# libtorch from the torch wheel of the Python in use (or Torch_DIR / CMAKE_PREFIX_PATH).

find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Torch_DIR AND Python3_Interpreter_FOUND)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
      "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.join(os.path.dirname(s.origin), 'share/cmake/Torch') if s else '')"
    OUTPUT_VARIABLE _torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(_torch_dir)
    set(Torch_DIR "${_torch_dir}" CACHE PATH "libtorch's CMake files")
  endif()
endif()
find_package(Torch REQUIRED)

# torch's own target carries flags that are not ours: keep them, but as a system library.
# IMPORTED, so that exported targets name it and gristmillConfig.cmake makes it anew.
add_library(gristmill_torch INTERFACE IMPORTED GLOBAL)
target_link_libraries(gristmill_torch INTERFACE ${TORCH_LIBRARIES})
target_include_directories(gristmill_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})

# torch/types.h (tensors and functions, without torch::nn and data loading) takes 10 s to read, torch/torch.h
# twice that: use the former. gristmill_precompile_torch(TARGET) gives a target its precompiled header: the
# rooms share one, executables, which are compiled with other flags, have one each.
function(gristmill_precompile_torch target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY" AND NOT target STREQUAL "gristmill_rollout")
    target_precompile_headers(${target} REUSE_FROM gristmill_rollout)
  else()
    target_precompile_headers(${target} PRIVATE <torch/types.h>)
  endif()
endfunction()

# Where installed binaries look for libtorch: beside the Python package in a wheel, and where it is now
# in any other installation.
set(GRISTMILL_INSTALL_RPATH "$ORIGIN/../torch/lib")
if(NOT SKBUILD)
  list(APPEND GRISTMILL_INSTALL_RPATH "${TORCH_INSTALL_PREFIX}/lib")
endif()
