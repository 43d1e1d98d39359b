// The pools of this user on this node, for the command `ebbtide node`.
#include "ebbtide/node.hpp"

#include <algorithm>
#include <nanobind/nanobind.h>

#include "attended.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "text.hpp"

namespace ebb::python {
namespace {

nb::object path_text(const std::filesystem::path& path) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.c_str(), static_cast<Py_ssize_t>(path.native().size())));
}

nb::dict to_dict(const admin::PoolProcess& from) {
  nb::dict one;
  one["rank"] = from.rank;
  one["pid"] = from.pid;
  one["alive"] = from.alive;
  one["elsewhere"] = from.elsewhere;
  one["share"] = from.share;
  one["slabs"] = from.claimed;
  one["checkpoints"] = from.checkpoints;
  one["bytes"] = from.bytes;
  return one;
}

nb::dict to_dict(const admin::Pool& from) {
  static constexpr const char* kAgents[] = {"none", "program", "thread"};
  nb::dict one;
  one["job"] = nb::str(from.job.c_str());
  one["file"] = path_text(from.file);
  if (from.error) {
    nb::dict error;
    error["reason"] = nb::str(std::string(name_of(from.error->code)).c_str());
    error["message"] = nb::steal(PyUnicode_DecodeUTF8(
        from.error->message.data(), static_cast<Py_ssize_t>(from.error->message.size()), "backslashreplace"));
    one["error"] = error;
    return one;
  }
  one["error"] = nb::none();
  one["store"] = from.directory.empty() ? nb::none() : nb::object(path_text(from.directory));
  one["budget"] = from.budget;
  one["chunk"] = from.chunk;
  one["slab"] = from.slab;
  nb::dict agent;
  agent["kind"] = nb::str(kAgents[static_cast<int>(from.agent)]);
  agent["pid"] = from.agent_pid != 0 ? nb::object(nb::int_(from.agent_pid)) : nb::none();
  one["agent"] = agent;
  nb::list processes;
  for (const admin::PoolProcess& process : from.processes) processes.append(to_dict(process));
  one["processes"] = processes;
  one["checkpoints"] = from.checkpoints;
  one["bytes"] = from.bytes;
  return one;
}

nb::list pools() {
  nb::list all;
  for (const admin::Pool& pool : check(admin::pools())) all.append(to_dict(pool));
  return all;
}

nb::list lenders() {
  nb::list all;
  for (const admin::Lender& lender : check(admin::lenders())) {
    nb::dict one;
    one["group"] = nb::str(lender.group.c_str());
    one["pid"] = lender.pid;
    one["gpu"] = lender.gpu ? nb::object(nb::int_(*lender.gpu)) : nb::none();
    one["offered"] = lender.offered;
    one["share"] = lender.share;
    nb::list leases;
    for (const LeaseInfo& lease : lender.leases) leases.append(python::to_dict(lease));
    one["leases"] = leases;
    one["leases_not_shown"] = lender.leases_not_shown;
    all.append(one);
  }
  return all;
}

nb::dict drain(const std::string& job, double timeout) {
  constexpr double kMost = 1e9;  // seconds
  const std::chrono::milliseconds limit(static_cast<std::int64_t>(std::min(timeout, kMost) * 1000));
  Attended attended{nb::none()};
  std::optional<Result<admin::Drained>> done;
  attended.run([&, go_on = attended.progress()] { done = admin::drain(job, limit, [&] { return go_on(0); }); });
  const admin::Drained got = check(std::move(*done));
  nb::dict out;
  out["checkpoints"] = got.checkpoints;
  out["bytes"] = got.bytes;
  out["removed"] = got.removed;
  return out;
}

}  // namespace

void bind_node(nb::module_& module) {
  module.def("pools", &pools, nb::sig("def pools() -> list[dict[str, typing.Any]]"),
             "The pools of this user on this node, each as `ebbtide node --json` has it.");
  module.def("lenders", &lenders, nb::sig("def lenders() -> list[dict[str, typing.Any]]"),
             "The stores of this user on this node that lend memory, each as `ebbtide node --json` has it.");
  module.def("drain", &drain, nb::arg("job"), nb::arg("timeout"),
             nb::sig("def drain(job: str, timeout: float) -> dict[str, typing.Any]"),
             "Waits until what a pool's processes have handed over is written; see ``ebbtide node drain``.");
}

}  // namespace ebb::python
