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

# Programs: beside the extension modules in the Python package, and among the programs.
foreach(_program gristmill-worker gristmill-soak)
  if(NOT TARGET ${_program})
    continue()
  endif()
  string(REPLACE "-" "_" _name ${_program})
  add_custom_command(OUTPUT ${GRISTMILL_PACKAGE_DIR}/${_program} DEPENDS ${_program}
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:${_program}> ${GRISTMILL_PACKAGE_DIR}/${_program})
  add_custom_target(${_name}_in_package ALL DEPENDS ${GRISTMILL_PACKAGE_DIR}/${_program})
  install(TARGETS ${_program} RUNTIME DESTINATION gristmill COMPONENT python)
  install(TARGETS ${_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
endforeach()
if(TARGET gristmill-worker)
  set_target_properties(gristmill-worker PROPERTIES INSTALL_RPATH "${GRISTMILL_INSTALL_RPATH}")
endif()
