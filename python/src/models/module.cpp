// ebbtide._models: the extension module of the simulator and the models. It knows no store.
#include "modules.hpp"

NB_MODULE(_models, module) {
  using namespace ebb::python;
  module.doc() = "The C++ side of ebbtide.sim and ebbtide.models. Use their names.";
  bind_sim(module);
  bind_spill(module);
  bind_zones(module);
}
