#include "node/job.hpp"

#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "node/pool_file.hpp"
#include "os/process_id.hpp"
#include "tests/doubles/memory_files.hpp"

namespace ebb::node {
namespace {

using platform::Open;
using runtime::Environment;

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    add(100, "100 (mpirun) S 1 100 100 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 10 18446744073709551615 1");
    add(200, "200 (a ) name) S) R 1 200 200 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 888 1000 10 18446744073709551615");
  }
  void add(pid_t pid, const std::string& text) {
    static_cast<void>(files_.make_directory("/proc"));
    const std::string directory = "/proc/" + std::to_string(pid);
    static_cast<void>(files_.make_directory(directory));
    const auto fd = files_.open(directory + "/stat", Open::create, false);
    EXPECT_TRUE(fd);
    EXPECT_TRUE(files_.write(static_cast<int>(fd.value), text.data(), text.size(), 0));
    EXPECT_TRUE(files_.close(static_cast<int>(fd.value)));
  }
  std::string job(const Environment& environment, Ancestry ancestry = {100, 200}) {
    return job_identity(environment, files_, ancestry).value();
  }
  platform::testing::MemoryFiles files_;
};

TEST_F(JobTest, a_schedulers_id_comes_first) {
  EXPECT_EQ(job({{"SLURM_JOB_ID", "4711"}, {"EBBTIDE_JOB", "mine"}}), "slurm-4711");
  EXPECT_EQ(job({{"PBS_JOBID", "12[3].server.example"}}), "pbs-12%5B3%5D.server.example");
  EXPECT_EQ(job({{"LSB_JOBID", "12"}}), "lsf-12");
  EXPECT_EQ(job({{"LSB_JOBID", "12"}, {"LSB_JOBINDEX", "3"}}), "lsf-12%3A3");
  EXPECT_EQ(job({{"FLUX_JOB_ID", "\u0192x"}, {"SLURM_JOB_ID", "1"}}), "flux-%C6%92x");
  EXPECT_EQ(job({{"PJM_JOBID", "9"}}), "pjm-9");
}

TEST_F(JobTest, the_users_own_name_for_it_is_next) {
  EXPECT_EQ(job({{"EBBTIDE_JOB", "mine"}}), "job-mine");
  EXPECT_EQ(job({{"EBBTIDE_JOB", "../a/%b\n"}}), "job-..%2Fa%2F%25b%0A");
  EXPECT_EQ(job({{"EBBTIDE_JOB", ""}, {"SLURM_JOB_ID", ""}}), "process-200-888");
}

TEST_F(JobTest, a_launcher_is_the_parent_where_its_variables_say_so_and_else_leads_the_group) {
  EXPECT_EQ(job({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "process-100-777");
  EXPECT_EQ(job({{"LOCAL_WORLD_SIZE", "1"}}), "process-200-888");
  EXPECT_EQ(job({}), "process-200-888");
}

TEST_F(JobTest, a_launcher_that_has_ended_is_named) {
  for (const pid_t gone : {300, 301}) {
    if (gone == 301) add(gone, "301 (cut) R 1 2");
    const auto refused = job_identity({}, files_, {100, gone});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_NE(refused.error().message.find("/proc/" + std::to_string(gone) + "/stat"), std::string::npos);
    EXPECT_NE(refused.error().message.find("set EBBTIDE_JOB"), std::string::npos);
  }
}

TEST_F(JobTest, every_identity_names_a_file) {
  const std::string longest = job({{"EBBTIDE_JOB", std::string(64, '/')}});
  EXPECT_LE(longest.size(), kMaxJob);
  EXPECT_TRUE(is_job_identity(longest));
  EXPECT_LE(pool_name(longest).size(), 255u);
  EXPECT_TRUE(is_pool_name(pool_name(longest)));
  const auto refused = job_identity({{"EBBTIDE_JOB", std::string(65, 'x')}}, files_, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_NE(refused.error().message.find("EBBTIDE_JOB"), std::string::npos);
  for (const char* wrong : {"", "a/b", "a b"}) EXPECT_FALSE(is_job_identity(wrong)) << wrong;
  for (const char* wrong : {".pool", "a", "a/b.pool", "pin.lock"}) EXPECT_FALSE(is_pool_name(wrong)) << wrong;
}

TEST_F(JobTest, an_open_accepts_the_variable) { EXPECT_TRUE(runtime::with_environment({}, {{"EBBTIDE_JOB", "mine"}})); }

TEST(JobOfThisProcess, is_the_same_each_time) {
  platform::PosixFiles files;
  const Ancestry here = Ancestry::of_process();
  EXPECT_EQ(here.parent, ::getppid());
  const auto own = platform::process_id(files, ::getpid()).value();
  EXPECT_EQ(own.pid, ::getpid());
  EXPECT_GT(own.start, 0u);
  EXPECT_EQ(platform::process_id(files, ::getpid()).value(), own);
  EXPECT_FALSE(platform::process_id(files, 1 << 30));
}

}  // namespace
}  // namespace ebb::node
