// gristmill._train: training and acting, with libtorch but without Python's torch.

#include "python/bindings/bindings.h"

PYBIND11_MODULE(_train, module) {
  using namespace gristmill::python;
  module.doc() = "Training and acting of gristmill, in C++ on libtorch.";
  // Its exceptions and ResolvedConfig are used here.
  py::module_::import("gristmill._core");
  bind_checkpoint(module);
  bind_policy(module);
  bind_train(module);
}
