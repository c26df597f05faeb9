# find_package(gristmill COMPONENTS core …): one export set per library, so that core and config are
# found where there is no torch.

include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gristmill)

get_property(_rooms GLOBAL PROPERTY GRISTMILL_ROOMS)
foreach(_room IN LISTS _rooms)
  install(TARGETS gristmill_${_room} EXPORT gristmill_${_room}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT gristmill_${_room} FILE gristmill-${_room}.cmake NAMESPACE gristmill::
          DESTINATION ${_package_dir} COMPONENT development)
  if(NOT _room STREQUAL "config")  # lives in rollout/
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${_room}
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gristmill COMPONENT development
            FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()
if(NOT GRISTMILL_TORCH)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/rollout
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gristmill COMPONENT development
          FILES_MATCHING PATTERN "*.h")
endif()

configure_package_config_file(cmake/gristmillConfig.cmake.in gristmillConfig.cmake
                              INSTALL_DESTINATION ${_package_dir} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(gristmillConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gristmillConfig.cmake ${PROJECT_BINARY_DIR}/gristmillConfigVersion.cmake
        DESTINATION ${_package_dir} COMPONENT development)

# The worker: beside the extension modules in the Python package, and among the programs.
if(TARGET gristmill-worker)
  add_custom_command(OUTPUT ${GRISTMILL_PACKAGE_DIR}/gristmill-worker DEPENDS gristmill-worker
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:gristmill-worker> ${GRISTMILL_PACKAGE_DIR}/gristmill-worker)
  add_custom_target(gristmill_worker_in_package ALL DEPENDS ${GRISTMILL_PACKAGE_DIR}/gristmill-worker)
  set_target_properties(gristmill-worker PROPERTIES INSTALL_RPATH "${GRISTMILL_INSTALL_RPATH}")
  install(TARGETS gristmill-worker RUNTIME DESTINATION gristmill COMPONENT python)
  install(TARGETS gristmill-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
endif()
