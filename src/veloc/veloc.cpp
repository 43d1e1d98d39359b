// The C calls, and the process's one client.
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <veloc.h>
#include <veloc.hpp>

#include "veloc/client.hpp"
#include "veloc/say.hpp"

namespace ebb::veloc {

namespace {

// Not destroyed at the process's end: MPI is gone by then. What is not durable is sent by the next job.
Client* the_client = nullptr;

template <class Who>
Result<void> open(Who who, const char* file) {
  if (!file) return Error{Errc::invalid_argument, "the configuration file's name is NULL"};
  if (the_client) {
    say("Init", "it is open already, so this call has no effect");
    return {};
  }
  auto job = open_job(who, file);
  if (!job) return job.error();
  the_client = new Client(std::move(*job));
  return {};
}

int code(bool succeeded) { return succeeded ? VELOC_SUCCESS : VELOC_FAILURE; }

template <class Call>
bool with_client(const char* name, const Call& call) {
  if (the_client) return call(*the_client);
  say(name, "call VELOC_Init first");
  return false;
}

/// Of a call with a name that must be there.
template <class Call>
bool with_name(const char* call_name, const char* name, const Call& call) {
  return with_client(call_name, [&](Client& client) {
    if (name) return static_cast<bool>(call(client, std::string(name)));
    say(call_name, "the name is NULL");
    return false;
  });
}

/// Of a call with an array of ids.
template <class Call>
bool with_ids(const char* call_name, const int* ids, int count, int mode, const Call& call) {
  return with_client(call_name, [&](Client& client) {
    const bool needed = mode != VELOC_CKPT_ALL;
    if (needed && (count < 0 || (!ids && count > 0))) {
      say(call_name, count < 0 ? "the number of ids is " + std::to_string(count) : std::string("the ids are NULL"));
      return false;
    }
    return call(client, needed ? std::set<int>(ids, ids + count) : std::set<int>());
  });
}

template <class Who>
::veloc::client_t* get(Who who, const std::string& file) {
  if (the_client) return the_client;
  if (const auto opened = open(who, file.c_str()); !opened)
    throw std::runtime_error("VELOC: " + opened.error().message);
  return the_client;
}

}  // namespace

void forget(const Client* client) noexcept {
  if (the_client == client) the_client = nullptr;
}

}  // namespace ebb::veloc

using namespace ebb::veloc;

::veloc::client_t* veloc::get_client(unsigned int id, const std::string& cfg_file) { return get(id, cfg_file); }
::veloc::client_t* veloc::get_client(MPI_Comm comm, const std::string& cfg_file) { return get(comm, cfg_file); }

extern "C" {

int VELOC_Init(MPI_Comm comm, const char* cfg_file) {
  return code(guarded("Init", [&] { return open(comm, cfg_file); }));
}
int VELOC_Init_single(unsigned int id, const char* cfg_file) {
  return code(guarded("Init_single", [&] { return open(id, cfg_file); }));
}
int VELOC_Finalize(int drain) {
  return code(with_client("Finalize", [&](Client& client) {
    const std::unique_ptr<Client> owned(&client);
    return client.close(drain != 0);
  }));
}

int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size) {
  return code(
      with_client("Mem_protect", [&](Client& client) { return client.mem_protect(id, ptr, count, base_size, ""); }));
}
int VELOC_Mem_unprotect(int id) {
  return code(with_client("Mem_unprotect", [&](Client& client) { return client.mem_unprotect(id, ""); }));
}
int VELOC_Mem_clear(void) {
  return code(with_client("Mem_clear", [](Client& client) { return client.mem_clear(""), true; }));
}
int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name) {
  return code(with_name("Region_protect", name, [&](Client& client, const std::string& group) {
    return client.mem_protect(id, ptr, count, base_size, group);
  }));
}
int VELOC_Region_unprotect(int id, const char* name) {
  return code(with_name("Region_unprotect", name,
                        [&](Client& client, const std::string& group) { return client.mem_unprotect(id, group); }));
}
int VELOC_Region_clear(const char* name) {
  return code(with_name("Region_clear", name,
                        [](Client& client, const std::string& group) { return client.mem_clear(group), true; }));
}

int VELOC_Route_file(const char* original, char* routed) {
  return code(with_name("Route_file", original, [&](Client& client, const std::string& file) {
    if (!routed) return say("Route_file", "the place for the answer is NULL"), false;
    const std::string path = client.route_file(file);
    const bool fits = path.size() < VELOC_MAX_NAME;
    if (!fits) say("Route_file", "the path has more than VELOC_MAX_NAME bytes: " + path);
    std::memcpy(routed, fits ? path.c_str() : "", fits ? path.size() + 1 : 1);
    return fits && !path.empty();
  }));
}
int VELOC_Cleanup(const char* name) {
  return code(with_name("Cleanup", name, [](Client& client, const std::string& one) { return client.cleanup(one); }));
}

int VELOC_Checkpoint_begin(const char* name, int version) {
  return code(with_name("Checkpoint_begin", name,
                        [&](Client& client, const std::string& one) { return client.checkpoint_begin(one, version); }));
}
int VELOC_Checkpoint_mem(void) { return VELOC_Checkpoint_selective(VELOC_CKPT_ALL, nullptr, 0); }
int VELOC_Checkpoint_selective(int mode, int* ids, int no_ids) {
  return code(with_ids("Checkpoint_mem", ids, no_ids, mode, [&](Client& client, const std::set<int>& chosen) {
    return client.checkpoint_mem(mode, chosen);
  }));
}
int VELOC_Checkpoint_end(int success) {
  return code(with_client("Checkpoint_end", [&](Client& client) { return client.checkpoint_end(success != 0); }));
}
int VELOC_Checkpoint_wait(void) {
  return code(with_client("Checkpoint_wait", [](Client& client) { return client.checkpoint_wait(); }));
}
int VELOC_Checkpoint_finished(void) {
  return code(with_client("Checkpoint_finished", [](Client& client) { return client.checkpoint_finished(); }));
}
int VELOC_Checkpoint(const char* name, int version) {
  return code(with_name("Checkpoint", name,
                        [&](Client& client, const std::string& one) { return client.checkpoint(one, version); }));
}

int VELOC_Restart_test(const char* name, int version) {
  int newest = VELOC_FAILURE;
  with_name("Restart_test", name, [&](Client& client, const std::string& one) {
    newest = client.restart_test(one, version, -1);
    return true;
  });
  return newest;
}
int VELOC_Restart_begin(const char* name, int version) {
  return code(with_name("Restart_begin", name, [&](Client& client, const std::string& one) {
    return client.restart_begin(one, version, -1);
  }));
}
int VELOC_Recover_mem(void) { return VELOC_Recover_selective(VELOC_RECOVER_ALL, nullptr, 0); }
int VELOC_Recover_selective(int mode, int* ids, int no_ids) {
  return code(with_ids("Recover_mem", ids, no_ids, mode,
                       [&](Client& client, const std::set<int>& chosen) { return client.recover_mem(mode, chosen); }));
}
int VELOC_Recover_size(int id) {
  std::size_t size = kNoSize;
  with_client("Recover_size", [&](Client& client) { return size = client.recover_size(id), true; });
  return size <= std::numeric_limits<int>::max() ? static_cast<int>(size) : VELOC_FAILURE;
}
int VELOC_Restart_end(int success) {
  return code(with_client("Restart_end", [&](Client& client) { return client.restart_end(success != 0); }));
}
int VELOC_Restart(const char* name, int version) {
  return code(with_name("Restart", name,
                        [&](Client& client, const std::string& one) { return client.restart(one, version, -1); }));
}

int VELOC_Prefetch_enqueue(const char* name, int version) {
  return code(with_name("Prefetch_enqueue", name,
                        [&](Client& client, const std::string& one) { return client.prefetch_enqueue(one, version); }));
}
int VELOC_Prefetch_start(void) {
  return code(with_client("Prefetch_start", [](Client& client) { return client.prefetch_start(); }));
}
bool VELOC_Next_prefetched(const char* name, int version, int id) {
  return with_name("Next_prefetched", name,
                   [&](Client& client, const std::string& one) { return client.prefetched(one, version, id); });
}
int VELOC_Get_trf_metrics(char* text) {
  return code(with_client("Get_trf_metrics", [&](Client& client) {
    if (!text) return say("Get_trf_metrics", "the place for the answer is NULL"), false;
    const std::string metrics = client.metrics();
    std::memcpy(text, metrics.c_str(), metrics.size() + 1);
    return !metrics.empty();
  }));
}
size_t VELOC_Recover_ckpt_size(const char* name, int version, int id) {
  std::size_t size = kNoSize;
  with_name("Recover_ckpt_size", name, [&](Client& client, const std::string& one) {
    size = client.saved_size(one, version, id);
    return true;
  });
  return size;
}

}  // extern "C"

int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size, unsigned int flags,
                      void (*release_routine)(void*)) {
  return code(with_client("Mem_protect", [&](Client& client) {
    return client.protect_flagged(id, ptr, count, base_size, flags, release_routine);
  }));
}
