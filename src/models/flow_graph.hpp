#pragma once
// A node's memories and links as a network: from the remainders to the memory that can be spared, and to the host.
#include "models/flow.hpp"
#include "models/max_flow.hpp"

namespace ebb::models {

inline std::size_t gpu_index(int gpu) { return static_cast<std::size_t>(gpu); }

// Not thread-safe; keeps references to what it is made of. The edges into the remainders and out of the spare memories
// hold bytes; all others carry bytes at a rate while a slice of time lasts.
class FlowGraph {
 public:
  struct Edge {
    enum Kind : std::uint8_t { bytes, rate, unlimited } kind = unlimited;
    std::uint64_t amount = 0;  // bytes, or bytes a second
    int slice = -1;            // of a rate
  };

  FlowGraph(const PeerLinks& links, const Overflow& overflow);
  void add_slice(const std::vector<bool>& present);  // [gpu]: whether its transfers may run then

  MaxFlow network;
  std::vector<Edge> edges;  // as the network's
  int source() const { return 0; }
  int sink() const { return 1; }
  int remainder(int gpu) const { return 2 + gpu; }
  Bytes total() const { return total_; }

  // What a flow means, given for each edge in units of so many bytes.
  std::vector<Transfer> transfers(const std::vector<Bytes>& flow, Bytes unit) const;

 private:
  struct Way {
    int from = 0, to = 0, edge = 0;
  };
  struct Slice {
    std::vector<int> own_host;  // [gpu]: the edge to its own link; -1: none
    std::vector<int> to_spare;  // [gpu]: the edge from what comes in to its spare memory; -1: none
    std::vector<Way> ways;      // between GPUs
  };
  int add(int from, int to, Edge edge);
  int limited(int node, Rate rate, int slice);
  int spare(int gpu) const { return remainder(links_.gpus()) + gpu; }

  const PeerLinks& links_;
  const Overflow& overflow_;
  Bytes total_ = 0;
  std::vector<Slice> slices_;
};

}  // namespace ebb::models
