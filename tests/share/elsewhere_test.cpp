// Processes of a pool that this PID namespace does not show are never taken for dead ones.
#include <csignal>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "share/agent/dead_pools.hpp"
#include "share/agent/pool_survey.hpp"
#include "tests/doubles/forward_files.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using test::in_child;
using test::kMiB;
using test::Place;
using test::Rank;
using test::status_of;

constexpr int kNotAllowed = 77;

// The double: a /proc in which no other process is seen.
class AloneInProc final : public doubles::ForwardFiles<AloneInProc> {
 public:
  explicit AloneInProc(os::Files& inner) : ForwardFiles(inner), inner_(inner) {}
  os::SysResult open_read(const std::filesystem::path& path) noexcept override {
    const std::string& text = path.native();
    const bool hidden = text.starts_with("/proc/") && text.size() > 6 && text[6] >= '0' && text[6] <= '9';
    return hidden ? os::SysResult::failed(ENOENT) : inner_.open_read(path);
  }
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }

 private:
  friend ForwardFiles;
  template <class Whole>
  os::SysResult around(const doubles::FileRecord&, Whole&& whole) noexcept {
    return whole();
  }
  os::Files& inner_;
};

// Runs `work` where this namespace's processes are not seen, in a child. kNotAllowed: no namespace may be made here.
int in_double(const std::function<void(os::Files&)>& work) {
  return WEXITSTATUS(status_of(in_child([&] {
    os::PosixFiles posix;
    AloneInProc files(posix);
    work(files);
  })));
}

int in_namespace(const std::function<void(os::Files&)>& work) {
  return WEXITSTATUS(status_of(in_child([&] {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      ::_exit(kNotAllowed);
    const pid_t first = in_child([&] {
      if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) ::_exit(kNotAllowed);
      os::PosixFiles files;
      work(files);
    });
    ::_exit(WEXITSTATUS(status_of(first)));
  })));
}

// Two processes of a pool, of which the one that has the agent is killed, and the other is stopped before it can begin
// the next one.
pid_t leave_a_living_member(const Place& place) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const auto join = [&](std::uint64_t rank) {
    const pid_t child = in_child([&, rank] {
      Rank member(place, rank, 2, 16 * kMiB);
      EXPECT_FALSE(member.error());
      EXPECT_EQ(::write(ends[1], "j", 1), 1);
      for (;;) ::pause();
    });
    char word = 0;
    EXPECT_EQ(::read(ends[0], &word, 1), 1);
    return child;
  };
  const pid_t first = join(0), second = join(1);
  ::kill(second, SIGSTOP);
  int status = 0;
  EXPECT_EQ(::waitpid(second, &status, WUNTRACED), second);
  ::kill(first, SIGKILL);
  status_of(first);
  ::close(ends[0]);
  ::close(ends[1]);
  return second;
}

using Elsewhere = int (*)(const std::function<void(os::Files&)>&);
class PoolsElsewhere : public ::testing::TestWithParam<std::pair<const char*, Elsewhere>> {};

TEST_P(PoolsElsewhere, a_pool_of_living_processes_that_are_not_seen_is_left_alone) {
  const Elsewhere elsewhere = GetParam().second;
  if (elsewhere([](os::Files&) {}) == kNotAllowed) GTEST_SKIP() << "no PID namespace may be made here";
  const Place place;
  const pid_t living = leave_a_living_member(place);
  EXPECT_EQ(elsewhere([&](os::Files& files) {
              os::SteadyClock clock;
              const auto finished = finish_if_dead(place.seams(), files, clock, "job-test.pool");
              ASSERT_TRUE(finished) << finished.error().message;
              EXPECT_FALSE(*finished);
              const auto survey = survey_pool(place.seams(), files, "job-test.pool").value();
              ASSERT_TRUE(survey);
              std::map<std::uint64_t, std::pair<bool, bool>> ranks;
              for (const SurveyedProcess& one : survey->processes) ranks[one.process.rank] = {one.alive, one.elsewhere};
              EXPECT_EQ(ranks[0], std::pair(false, false));
              EXPECT_EQ(ranks[1], std::pair(true, true));
              Rank another(place, 0, 2, 16 * kMiB, "job-test", &files);
              ASSERT_TRUE(another.error());
              EXPECT_EQ(another.error()->message, of_another_namespace().message);
            }),
            0);
  EXPECT_EQ(place.pools().size(), 1u);
  os::PosixFiles files;
  const auto survey = survey_pool(place.seams(), files, "job-test.pool").value();
  EXPECT_TRUE(survey->any_alive());
  for (const SurveyedProcess& one : survey->processes) EXPECT_FALSE(one.elsewhere);

  ::kill(living, SIGKILL);
  status_of(living);
  EXPECT_EQ(elsewhere([&](os::Files& there) {
              os::SteadyClock clock;
              const auto finished = finish_if_dead(place.seams(), there, clock, "job-test.pool");
              ASSERT_TRUE(finished) << finished.error().message;
              EXPECT_TRUE(*finished);
            }),
            0);
  EXPECT_EQ(place.pools().size(), 0u);
}

// Where the directories of sockets differ, as with XDG_RUNTIME_DIR in one container alone, an agent cannot be reached.
TEST_P(PoolsElsewhere, an_agent_that_is_not_reached_keeps_its_pool) {
  const Elsewhere elsewhere = GetParam().second;
  if (elsewhere([](os::Files&) {}) == kNotAllowed) GTEST_SKIP() << "no PID namespace may be made here";
  const Place place, sockets;
  NodeSeams apart = place.seams();
  apart.sockets = sockets.seams().sockets;
  os::PosixFiles posix;
  PoolFile pool = PoolFile::create(apart.memory->create("job-test.pool").value(),
                                   {choose_shape(8 * kMiB, kMiB, 1).value(), "job-test"})
                      .value();
  const auto finish = [&](os::Files& files) {
    os::SteadyClock clock;
    EXPECT_FALSE(finish_if_dead(apart, files, clock, "job-test.pool").value());
  };
  EXPECT_EQ(elsewhere(finish), 0);
  EXPECT_EQ(place.pools().size(), 1u);
}

// Calls `opened` at each opening of a pool's file.
class WatchedMemory final : public os::SharedMemory {
 public:
  WatchedMemory(std::shared_ptr<os::SharedMemory> inner, std::function<void()> opened)
      : inner_(std::move(inner)), opened_(std::move(opened)) {}
  Result<std::unique_ptr<os::SharedFile>> open(const std::string& name) override {
    opened_();
    return inner_->open(name);
  }
  Result<std::unique_ptr<os::SharedFile>> create(const std::string& name) override { return inner_->create(name); }
  Result<void> remove(const std::string& name) override { return inner_->remove(name); }
  Result<std::vector<std::string>> list() override { return inner_->list(); }

 private:
  const std::shared_ptr<os::SharedMemory> inner_;
  const std::function<void()> opened_;
};

class WatchedPlace final : public Place {
 public:
  NodeSeams seams() const override {
    NodeSeams seams = Place::seams();
    seams.memory = std::make_shared<WatchedMemory>(std::move(seams.memory), [this] { opened(); });
    return seams;
  }
  std::function<void()> opened = [] {};
};

// As a GPU's driver does: the memory of a process that has ended, and with it what the process held, goes later.
TEST(PoolsEnding, a_process_that_has_ended_is_waited_for_until_its_memory_is_gone) {
  WatchedPlace place;
  const pid_t dead = in_child([&] {
    Rank member(place, 0, 2, 16 * kMiB);
    ::_exit(member.error() ? 1 : 0);
  });
  ASSERT_EQ(status_of(dead), 0);
  std::optional<PoolFile> held = PoolFile::open(place.Place::seams().memory->open("job-test.pool").value()).value();
  ASSERT_TRUE(held->hold(held->tables().process(0).value().process));
  constexpr int kOneTry = 2;
  place.opened = [&, opened = 0]() mutable {
    if (++opened > kOneTry) held.reset();
  };
  Rank next(place, 0, 2, 16 * kMiB);
  EXPECT_FALSE(next.error()) << next.error()->message;
  EXPECT_FALSE(held);
}

INSTANTIATE_TEST_SUITE_P(All, PoolsElsewhere,
                         ::testing::Values(std::pair("double", &in_double), std::pair("namespace", &in_namespace)),
                         [](const auto& one) { return std::string(one.param.first); });

}  // namespace
}  // namespace ebb::share
