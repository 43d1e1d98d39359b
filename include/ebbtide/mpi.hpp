#pragma once
// Groups of ranks over MPI, for C++; see group.hpp. Compiled with the program, by its own MPI.
#include <memory>

#include "ebbtide/group.hpp"
#include "ebbtide/mpi.h"

namespace ebb {

/// Throws BadResult.
inline std::unique_ptr<Collective> collective(MPI_Comm comm) {
  class Ranks final : public Collective {
   public:
    explicit Ranks(const ebb_collective& made) : made_(made) {}
    Ranks(const Ranks&) = delete;
    ~Ranks() override { made_.free(made_.context); }
    int rank() const override { return made_.rank; }
    int count() const override { return made_.count; }
    Result<void> begin_least(std::span<std::int64_t> values) override {
      return told(made_.begin_least(made_.context, values.data(), values.size()));
    }
    Result<bool> test(bool wait) override {
      int done = 0;
      if (const auto failed = told(made_.test(made_.context, wait, &done)); !failed) return failed.error();
      return done != 0;
    }

   private:
    static Result<void> told(int error) {
      if (error == MPI_SUCCESS) return {};
      char text[MPI_MAX_ERROR_STRING];
      int length = 0;
      MPI_Error_string(error, text, &length);
      return Error{Errc::io_error, "this rank cannot talk to the others: " + std::string(text, text + length)};
    }
    ebb_collective made_;
  };
  ebb_status status = EBB_OK;
  const ebb_collective made = ebb_mpi_collective(comm, &status);
  if (status != EBB_OK) throw BadResult(Error{Errc::io_error, "the communicator cannot be duplicated"});
  return std::make_unique<Ranks>(made);
}

}  // namespace ebb
