#include "share/pool/job.hpp"

#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "os/process_id.hpp"
#include "share/pool/pool_file.hpp"
#include "tests/doubles/memory_files.hpp"

namespace ebb::share {
namespace {

using options::Environment;
using os::Open;

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    add(100, "100 (mpirun) S 1 100 100 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 10 18446744073709551615 1");
    add(200, "200 (a ) name) S) R 1 200 200 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 888 1000 10 18446744073709551615");
  }
  void add(pid_t pid, const std::string& text) { add(std::to_string(pid), text); }
  void add(const std::string& name, const std::string& text) {
    static_cast<void>(files_.make_directory("/proc"));
    const std::string directory = "/proc/" + name;
    static_cast<void>(files_.make_directory(directory));
    const auto fd = files_.open(directory + "/stat", Open::create, false);
    EXPECT_TRUE(fd);
    EXPECT_TRUE(files_.write(static_cast<int>(fd.value), text.data(), text.size(), 0));
    EXPECT_TRUE(files_.close(static_cast<int>(fd.value)));
  }
  std::string job(const Environment& environment, Ancestry ancestry = {100, 200, 0, 0}) {
    return job_identity(environment, files_, ancestry).value();
  }
  doubles::MemoryFiles files_;
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

// Each process of a row has ended (300), cannot be read (301), or belongs to another PID namespace (0).
TEST_F(JobTest, what_has_ended_or_is_invisible_gives_way_to_the_session_and_then_to_the_process_itself) {
  add(301, "301 (cut) R 1 2");
  for (const pid_t gone : {300, 301, 0}) {
    EXPECT_EQ(job({}, {gone, 200, 100, 100}), "process-200-888") << gone;
    EXPECT_EQ(job({}, {gone, gone, 100, 200}), "process-100-777-group-" + std::to_string(gone));
    EXPECT_EQ(job({}, {gone, gone, gone, 200}), "process-200-888") << gone;
    EXPECT_EQ(job({}, {gone, gone, gone, 200, 4026532345}), "process-200-888-in-4026532345") << gone;
    EXPECT_FALSE(job_identity({}, files_, {gone, gone, gone, gone})) << gone;
  }
}

TEST_F(JobTest, several_processes_of_a_launcher_are_its_job_or_its_children_or_refused) {
  const Environment several = {{"LOCAL_WORLD_SIZE", "4"}};
  for (const pid_t gone : {300, 0}) {
    Environment named = several;
    named["PMIX_NAMESPACE"] = "prterun-host-17@1";
    EXPECT_EQ(job(named, {gone, gone, gone, 200}), "pmix-prterun-host-17%401");
    EXPECT_EQ(job(named), job(named, {200, 100, 100, 200})) << "whatever shells stand between";
    EXPECT_EQ(job({{"PMIX_NAMESPACE", "alone"}}), "process-200-888");
    EXPECT_EQ(job({{"LOCAL_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", std::string(65, 'x')}}), "process-100-777");
    const auto refused = job_identity(several, files_, {gone, 200, 200, 200});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_NE(refused.error().message.find("4 processes"), std::string::npos);
    EXPECT_NE(refused.error().message.find("EBBTIDE_JOB"), std::string::npos);
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

TEST_F(JobTest, an_open_accepts_the_variable) { EXPECT_TRUE(options::with_environment({}, {{"EBBTIDE_JOB", "mine"}})); }

TEST(JobOfThisProcess, is_the_same_each_time) {
  os::PosixFiles files;
  const Ancestry here = Ancestry::of_process();
  EXPECT_EQ(here.parent, ::getppid());
  EXPECT_EQ(here.self, ::getpid());
  EXPECT_TRUE(is_job_identity(job_identity({}, files, here).value()));
  const auto own = os::process_id(files, ::getpid()).value();
  EXPECT_EQ(own.pid, ::getpid());
  EXPECT_EQ(os::this_process(files).value(), own);
  EXPECT_GT(own.start, 0u);
  EXPECT_EQ(os::process_id(files, ::getpid()).value(), own);
  EXPECT_FALSE(os::process_id(files, 1 << 30));
}

TEST_F(JobTest, a_proc_of_another_namespace_is_refused) {
  const pid_t other = ::getpid() + 1;
  add("self", std::to_string(other) + " (x) R 1 2 2 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 888 1000 10 1 1");
  const auto refused = os::this_process(files_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("PID namespace"), std::string::npos);
}

TEST(JobOfDirectory, is_one_for_each_directory_however_it_is_written) {
  const std::string job = job_of_directory("/nvme/heat");
  EXPECT_TRUE(is_job_identity(job));
  EXPECT_EQ(job_of_directory("/nvme/./old/../heat"), job);
  EXPECT_NE(job_of_directory("/nvme/heat-2"), job);
}

}  // namespace
}  // namespace ebb::share
