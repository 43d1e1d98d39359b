// The program of hpdc23, Listing 1, with VELOC's calls: checkpoints of a forward pass are read in reverse order. Memory
// is the host's here; with cudaMalloc in place of the vector it is a GPU's.
//
//   mpicxx -std=c++20 -O2 listing1.cpp -lveloc-client -o listing1 && mpirun -n 1 ./listing1 veloc.cfg
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>
#include <veloc.h>

namespace {

constexpr int kSnapshots = 50, kRegion = 0;

void check(int answer) {
  if (answer != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);  // why is on stderr
}

std::size_t points_of(int snapshot) { return 40'000 + 1'000 * static_cast<std::size_t>(snapshot % 7); }

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check(VELOC_Init(MPI_COMM_WORLD, argc > 1 ? argv[1] : "veloc.cfg"));
  const std::string shot = "shot_0";
  std::vector<std::int64_t> field(points_of(6));

  for (int i = kSnapshots; i-- > 0;) check(VELOC_Prefetch_enqueue(shot.c_str(), i));  // the order of the backward pass
  for (int i = 0; i < kSnapshots; ++i) {
    std::iota(field.begin(), field.end(), std::int64_t{i} << 32);  // the forward pass
    check(VELOC_Mem_protect(kRegion, field.data(), points_of(i), sizeof field[0]));
    check(VELOC_Checkpoint(shot.c_str(), i));
  }
  check(VELOC_Prefetch_start());
  int wrong = 0;
  for (int i = kSnapshots; i-- > 0;) {
    const std::size_t bytes = VELOC_Recover_ckpt_size(shot.c_str(), i, kRegion);
    check(VELOC_Mem_protect(kRegion, field.data(), bytes / sizeof field[0], sizeof field[0]));
    check(VELOC_Restart(shot.c_str(), i));
    wrong +=
        bytes != points_of(i) * sizeof field[0] ||
        field[bytes / sizeof field[0] - 1] != (std::int64_t{i} << 32) + static_cast<std::int64_t>(points_of(i)) - 1;
  }
  check(VELOC_Finalize(1));
  std::printf("%d snapshots, %d of them wrong\n", kSnapshots, wrong);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
