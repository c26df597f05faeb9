# Installs BUILD_DIR into a prefix of its own, then configures, builds and runs the project SOURCE_DIR
# against it. Arguments: BUILD_DIR, SOURCE_DIR, WORK_DIR, and TORCH_DIR (empty: torch stays hidden).

file(REMOVE_RECURSE ${WORK_DIR})

function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE _code OUTPUT_VARIABLE _output ERROR_VARIABLE _output)
  if(NOT _code EQUAL 0)
    list(JOIN ARGN " " _command)
    message(FATAL_ERROR "${_command}\nended with ${_code}:\n${_output}")
  endif()
  message(STATUS "${_output}")
endfunction()

must(${CMAKE_COMMAND} --install ${BUILD_DIR} --component development --prefix ${WORK_DIR}/prefix)
must(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -DCMAKE_BUILD_TYPE=Release
     -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DTorch_DIR=${TORCH_DIR})
must(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
must(${WORK_DIR}/build/consumer)
