#include "python/bindings/python_environment.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace gristmill {

namespace {

// More than any worker's buffers have; past it, the views are made anew.
constexpr std::size_t kMostViews = 4096;

py::dtype numpy_dtype(DType dtype) { return py::dtype(std::string(dtype_name(dtype))); }

// Runs `call`, with Python's exceptions as std::runtime_error. REQUIRES: the GIL.
template <typename Call>
auto translated(Call&& call) {
  try {
    return call();
  } catch (const py::error_already_set& error) {
    throw std::runtime_error(describe(error));
  }
}

}  // namespace

std::string describe(const py::error_already_set& error) {
  try {
    const py::object lines =
        py::module_::import("traceback").attr("format_exception")(error.type(), error.value(), error.trace());
    const auto traceback = py::str("").attr("join")(lines).cast<std::string>();
    const auto type = error.type().attr("__name__").cast<std::string>();
    return type + ": " + py::str(error.value()).cast<std::string>() + "\n\n" + traceback;
  } catch (const py::error_already_set&) {
    return error.what();  // an exception that cannot be formatted
  }
}

PythonVectorEnvironment::PythonVectorEnvironment(py::object environment)
    : environment_(std::move(environment)),
      step_(environment_.attr("step")),
      spec_(EnvironmentSpec::from_json(environment_.attr("spec")().cast<std::string>())),
      size_(static_cast<std::int64_t>(py::len(environment_))) {}

PythonVectorEnvironment::~PythonVectorEnvironment() {
  const py::gil_scoped_acquire gil;
  try {
    environment_.attr("close")();
  } catch (const py::error_already_set& error) {
    py::error_already_set(error).discard_as_unraisable("closing the environments");
  }
  // While the GIL is held: the members' own destructors run after it is gone.
  arguments_.clear();
  step_ = py::object();
  environment_ = py::object();
}

void PythonVectorEnvironment::reset(Rows observations) {
  const py::gil_scoped_acquire gil;
  translated([&] {
    environment_.attr("reset")(
        view(observations, numpy_dtype(spec_.observation_dtype), spec_.observation_shape));
  });
}

void PythonVectorEnvironment::step(Rows actions, const StepRows& out) {
  const py::gil_scoped_acquire gil;
  translated([&] {
    step_(*step_arguments(
        {actions, out.observations, out.rewards, out.terminated, out.truncated, out.final_observations}));
  });
}

const py::tuple& PythonVectorEnvironment::step_arguments(const Key& key) {
  const auto found = arguments_.find(key);
  if (found != arguments_.end()) return found->second;
  if (arguments_.size() >= kMostViews) arguments_.clear();
  const auto& [actions, observations, rewards, terminated, truncated, final_observations] = key;
  const py::dtype observation = numpy_dtype(spec_.observation_dtype);
  const py::dtype flag = numpy_dtype(DType::kBool);
  const py::dtype real = numpy_dtype(DType::kFloat32);
  const py::array action_view = spec_.discrete() ? view(actions, numpy_dtype(DType::kInt32), {})
                                                 : view(actions, real, {spec_.action_dims});
  return arguments_
      .emplace(key,
               py::make_tuple(action_view, view(observations, observation, spec_.observation_shape),
                              view(rewards, real, {}), view(terminated, flag, {}), view(truncated, flag, {}),
                              view(final_observations, observation, spec_.observation_shape)))
      .first->second;
}

py::array PythonVectorEnvironment::view(Rows rows, const py::dtype& dtype,
                                        const std::vector<std::int64_t>& shape) const {
  std::vector<py::ssize_t> extents = {size_};
  extents.insert(extents.end(), shape.begin(), shape.end());
  std::vector<py::ssize_t> strides(extents.size());
  strides[0] = rows.stride;
  py::ssize_t stride = dtype.itemsize();
  for (std::size_t d = extents.size(); d-- > 1;) {
    strides[d] = stride;
    stride *= extents[d];
  }
  // A base makes it a view: the memory stays the caller's.
  return py::array(dtype, extents, strides, rows.data, environment_);
}

std::size_t PythonVectorEnvironment::KeyHash::operator()(const Key& key) const {
  std::size_t hash = 0;
  for (const Rows& rows : key) hash = hash * 31 + reinterpret_cast<std::uintptr_t>(rows.data);
  return hash;
}

bool PythonVectorEnvironment::KeyEqual::operator()(const Key& a, const Key& b) const {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].data != b[i].data || a[i].stride != b[i].stride) return false;
  }
  return true;
}

}  // namespace gristmill
