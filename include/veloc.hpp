#pragma once
// VELOC's interface for C++, kept by Ebbtide: docs/veloc.md. The calls are those of veloc.h, and answer true for
// VELOC_SUCCESS.
//
//   auto client = std::unique_ptr<veloc::client_t>(veloc::get_client(MPI_COMM_WORLD, "veloc.cfg"));
//   client->mem_protect(0, veloc::cereal::serializer(map), veloc::cereal::deserializer(map));
//   if (const int step = client->restart_test("heat", 0); step > 0) client->restart("heat", step);
#include <cstddef>
#include <functional>
#include <iostream>
#include <map>
#include <mpi.h>
#include <set>
#include <string>

#include "veloc/defs.h"

namespace veloc {

/// The order of the virtual functions is VELOC's.
class client_t {
 protected:
  static constexpr char default_mem_group[] = "default";
  using serializer_t = std::function<void(std::ostream&)>;
  using deserializer_t = std::function<bool(std::istream&)>;
  using observer_t = std::function<void(const std::string& name, int version)>;

 public:
  /// `name`: the checkpoints that have the region; by default all that have none of their own.
  virtual bool mem_protect(int id, void* ptr, std::size_t count, std::size_t base_size,
                           const std::string& name = default_mem_group) = 0;
  /// A region of the bytes that `s` writes at each checkpoint, and that `d` reads at a restart (false: it cannot).
  virtual bool mem_protect(int id, const serializer_t& s, const deserializer_t& d,
                           const std::string& name = default_mem_group) = 0;
  virtual bool mem_unprotect(int id, const std::string& name = default_mem_group) = 0;
  virtual void mem_clear(const std::string& name = default_mem_group) = 0;
  /// `type`: VELOC_OBSERVE_CKPT_END. An observer of that type is replaced.
  virtual bool register_observer(int type, const observer_t& obs) = 0;

  /// Empty: it failed.
  virtual std::string route_file(const std::string& original) = 0;
  virtual bool cleanup(const std::string& name) = 0;

  virtual bool checkpoint(const std::string& name, int version) = 0;
  virtual bool checkpoint_begin(const std::string& name, int version) = 0;
  virtual bool checkpoint_mem(int mode, const std::set<int>& ids) = 0;
  virtual bool checkpoint_end(bool success) = 0;
  virtual bool checkpoint_wait() = 0;
  virtual bool checkpoint_finished() = 0;

  /// `target_rank`: whose checkpoints are looked at, by this rank alone in restart_test; negative: this rank's own.
  virtual int restart_test(const std::string& name, int version, int target_rank = -1) = 0;
  virtual bool restart(const std::string& name, int version, int target_rank = -1) = 0;
  virtual bool restart_begin(const std::string& name, int version, int target_rank = -1) = 0;
  /// (size_t)-1: there is no such region.
  virtual std::size_t recover_size(int id) = 0;
  virtual bool recover_mem(int mode, const std::set<int>& ids) = 0;
  virtual bool restart_end(bool success) = 0;

  /// Closes, as VELOC_Finalize(0) does.
  virtual ~client_t() = 0;
};

/// The process's one client, opened if there is none. The caller deletes it, before MPI_Finalize, unless it calls
/// VELOC_Finalize. Throws std::runtime_error, which names what is wrong with the configuration.
client_t* get_client(unsigned int id, const std::string& cfg_file);
client_t* get_client(MPI_Comm comm, const std::string& cfg_file);

}  // namespace veloc
