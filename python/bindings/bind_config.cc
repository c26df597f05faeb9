#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "rollout/config.h"
#include "rollout/config_options.h"

namespace gristmill::python {
namespace {

// {dotted key: value}; objects are JSON text.
py::dict values_of(const Config& config) {
  py::dict values;
  visit_options(config, [&values](const Option& option, const auto& member) {
    values[py::str(std::string(option.key))] = member;
  });
  return values;
}

}  // namespace

void bind_config(py::module_& module) {
  py::class_<ResolvedConfig>(module, "ResolvedConfig",
                             "A checked configuration, and where each value came from.")
      .def_property_readonly(
          "values", [](const ResolvedConfig& self) { return values_of(self.config); },
          "{dotted key: value}; env.kwargs as JSON text.")
      .def_readonly("sources", &ResolvedConfig::sources,
                    "{dotted key: 'default', 'file.yaml:12' or 'override'}.")
      .def(
          "dump",
          [](const ResolvedConfig& self, bool with_help) { return dump_config(self.config, with_help); },
          py::arg("with_help") = false, "As YAML that reads back to the same configuration.");

  py::class_<OptionInfo>(module, "OptionInfo", "One option, for help texts.")
      .def_readonly("key", &OptionInfo::key, "Dotted.")
      .def_readonly("type", &OptionInfo::type, "integer, number, string, boolean, integers or object.")
      .def_readonly("value", &OptionInfo::value, "As dumped; an object as JSON.")
      .def_readonly("expected", &OptionInfo::expected, "Such as: an integer >= 1.")
      .def_readonly("help", &OptionInfo::help, "What it does.")
      .def("__repr__", [](const OptionInfo& self) {
        return "<option " + self.key + " = " + self.value + ": " + self.expected + ">";
      });

  module.def("load_config", &load_config, py::arg("path"), py::arg("overrides") = std::vector<std::string>{},
             "Reads a YAML file and applies 'dotted.key=value' overrides. Raises ConfigError.");
  module.def("parse_config", &parse_config, py::arg("yaml"), py::arg("origin") = "text",
             py::arg("overrides") = std::vector<std::string>{},
             "As load_config, from text; origin stands for the file in messages.");
  module.def(
      "check_override", [](const std::string& text) { return values_of(check_override(text)); },
      py::arg("override"),
      "{dotted key: value}: the defaults with 'dotted.key=value'. Raises ConfigError when that is wrong by "
      "itself.");
  module.def("config_schema", &config_schema, "JSON Schema (draft 2020-12) of a config file, as text.");
  module.def(
      "config_options", [] { return config_options(Config{}); }, "Every option with its default, in order.");
  module.def(
      "default_values", [] { return values_of(Config{}); }, "{dotted key: default}.");
}

}  // namespace gristmill::python
