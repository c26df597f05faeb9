# Installs BUILD_DIR into a prefix of its own, then configures, builds and runs the project SOURCE_DIR
# against it: `consumer`, with ARGUMENTS. TORCH_DIR empty: torch stays hidden. EXAMPLE: a source for it.
# PLUGIN: a project that is built against the prefix before, with a LIBRARY that has ENVIRONMENT: its id is
# the consumer's argument then.

file(REMOVE_RECURSE ${WORK_DIR})

function(must)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK_DIR}
                  RESULT_VARIABLE _code OUTPUT_VARIABLE _output ERROR_VARIABLE _output)
  message("${_output}")
  if(NOT _code EQUAL 0)
    list(JOIN ARGN " " _command)
    message(FATAL_ERROR "${_command}\nended with ${_code}")
  endif()
endfunction()

file(MAKE_DIRECTORY ${WORK_DIR})
must(${CMAKE_COMMAND} --install ${BUILD_DIR} --component development --prefix ${WORK_DIR}/prefix)
if(PLUGIN)
  must(${CMAKE_COMMAND} -S ${PLUGIN} -B ${WORK_DIR}/plugin -DCMAKE_BUILD_TYPE=Release
       -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
  must(${CMAKE_COMMAND} --build ${WORK_DIR}/plugin)
  set(ARGUMENTS plugin:${WORK_DIR}/plugin/${LIBRARY}:${ENVIRONMENT})
endif()
must(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -DCMAKE_BUILD_TYPE=Release
     -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DTorch_DIR=${TORCH_DIR} -DEXAMPLE=${EXAMPLE})
must(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
# How a C++ program that is not installed beside the worker says where it is.
set(ENV{GRISTMILL_WORKER} ${WORK_DIR}/prefix/bin/gristmill-worker)
must(${WORK_DIR}/build/consumer ${ARGUMENTS})
