// The line of a node's processes, with real processes that are really killed.
#include "os/pin_queue.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <new>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ebb::platform {
namespace {

constexpr std::chrono::hours kLong{1};

// A byte from one process to another, with whether all was well there.
class Signal {
 public:
  Signal() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  Signal(const Signal&) = delete;
  ~Signal() {
    for (const int end : ends_) ::close(end);
  }
  void give() const { EXPECT_EQ(::write(ends_[1], ::testing::Test::HasFailure() ? "-" : "+", 1), 1); }
  void take() const {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
    EXPECT_NE(byte, '-') << "something failed in the other process";
  }
  int writing_end() const { return ends_[1]; }

 private:
  std::array<int, 2> ends_{};
};

// A process that runs `work`; killed at its end, if it is not over.
class Process {
 public:
  explicit Process(const std::function<void()>& work) : id_(::fork()) {
    if (id_ != 0) return;
    work();
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  Process(const Process&) = delete;
  ~Process() { kill(); }
  void kill() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    join();
  }
  // Its exit status; 1000 and the signal that ended it.
  int join() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(id_, 0), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t id_;
};

[[noreturn]] void sleep_for_good() {
  for (;;) ::pause();
}

class NodeLockTest : public ::testing::Test {
 protected:
  NodeLockTest() {
    std::string name = (std::filesystem::temp_directory_path() / "ebb-line-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no directory for the test");
    directory_ = name;
  }
  ~NodeLockTest() override { std::filesystem::remove_all(directory_); }
  PinQueue line() const { return PinQueue("pinning", {directory_ / "ebbtide"}); }
  PinQueue::Ticket enter() const { return line().enter().value(); }
  std::filesystem::path directory_;
};

TEST_F(NodeLockTest, the_turn_is_one_at_a_time_and_in_order) {
  std::optional<PinQueue::Ticket> a = enter(), b = enter(), c = enter();
  EXPECT_FALSE(a->in_line());
  EXPECT_TRUE(a->poll());
  EXPECT_TRUE(a->in_line());
  EXPECT_TRUE(a->poll()) << "it stays ours";
  EXPECT_FALSE(b->poll());
  EXPECT_FALSE(c->poll());
  a = enter();  // who has just had it is the last again
  EXPECT_FALSE(a->poll());
  EXPECT_FALSE(c->poll()) << "b came before";
  EXPECT_TRUE(b->poll());
  EXPECT_FALSE(c->poll());
  b.reset();
  EXPECT_FALSE(a->poll());
  EXPECT_TRUE(c->poll());
  c.reset();
  EXPECT_TRUE(a->poll());
}

TEST_F(NodeLockTest, places_left_in_the_middle_are_no_matter) {
  PinQueue::Ticket first = enter(), second = enter(), third = enter();
  EXPECT_TRUE(first.poll());
  EXPECT_FALSE(second.poll());
  EXPECT_FALSE(third.poll());
  second.leave();
  EXPECT_FALSE(second.poll()) << "it was left";
  EXPECT_FALSE(second.in_line());
  PinQueue::Ticket fourth = enter();
  EXPECT_FALSE(fourth.poll());
  first.leave();
  EXPECT_FALSE(fourth.poll()) << "not in the place that became free, but behind all";
  EXPECT_TRUE(third.poll());
  PinQueue::Ticket moved = std::move(third);
  EXPECT_TRUE(moved.poll());
  EXPECT_FALSE(third.poll());
  moved = std::move(fourth);
  EXPECT_TRUE(moved.poll()) << "the turn was left for the place that was moved to it";
}

TEST_F(NodeLockTest, a_random_line_is_a_queue) {
  std::vector<std::pair<int, PinQueue::Ticket>> queue;  // as they took their places
  std::srand(7);
  for (int round = 0; round < 2000; ++round) {
    if (queue.size() < 5 && std::rand() % 2) {
      queue.emplace_back(round, enter());
      queue.back().second.poll();
    } else if (!queue.empty()) {
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(std::rand()) % queue.size()));
    }
    for (std::size_t i = 0; i < queue.size(); ++i) ASSERT_EQ(queue[i].second.poll(), i == 0) << round;
  }
}

TEST_F(NodeLockTest, the_turn_of_a_killed_process_is_the_next_ones) {
  Signal held;
  Process holder([&] {
    const PinQueue::Ticket place = line().acquire(std::atomic<bool>(false), kLong).value();
    held.give();
    sleep_for_good();
  });
  held.take();
  Signal waits;
  Process waiter([&] {
    PinQueue::Ticket place = enter();
    EXPECT_FALSE(place.poll());
    waits.give();
    sleep_for_good();
  });
  waits.take();
  PinQueue::Ticket place = enter();
  EXPECT_FALSE(place.poll());
  holder.kill();
  EXPECT_FALSE(place.poll()) << "another one waits";
  waiter.kill();
  EXPECT_TRUE(place.poll());
}

TEST_F(NodeLockTest, a_child_neither_has_nor_keeps_the_turn_of_its_parent) {
  Signal held, never;
  Process holder([&] {
    PinQueue::Ticket place = line().acquire(std::atomic<bool>(false), kLong).value();
    const pid_t child = ::fork();
    if (child == 0) {
      EXPECT_FALSE(place.poll());
      EXPECT_FALSE(place.in_line());
      // Not the child's to leave: the number of the descriptor stands for another file by now.
      std::array<int, 8> files{};
      for (int& file : files) file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      PinQueue::Ticket own = enter();
      EXPECT_FALSE(own.poll()) << "the parent has the turn";
      own.leave();
      place.leave();
      for (const int file : files) EXPECT_NE(::fcntl(file, F_GETFD), -1);
      held.give();
      never.take();  // the end of the test
      std::_Exit(0);
    }
    sleep_for_good();
  });
  held.take();
  PinQueue::Ticket place = enter();
  EXPECT_FALSE(place.poll());
  holder.kill();
  EXPECT_TRUE(place.poll()) << "the child lives, and has a copy of nothing";
  never.give();
}

TEST_F(NodeLockTest, one_process_takes_a_place_at_a_time) {
  PinQueue::Ticket place = enter();
  Signal inside;
  Process taking([&] {
    // The door, held while a place is taken: two who saw the same end of the line could both come to stand before it.
    struct flock door{};
    door.l_type = F_WRLCK;
    door.l_len = 1;
    const int file = ::open((directory_ / "ebbtide" / "pinning.lock").c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(::fcntl(file, F_OFD_SETLK, &door), 0);
    inside.give();
    sleep_for_good();
  });
  inside.take();
  EXPECT_FALSE(place.poll());
  taking.kill();
  EXPECT_TRUE(place.poll());
}

TEST_F(NodeLockTest, another_program_does_not_keep_the_turn) {
  Signal held, over, running, never;
  Process holder([&] {
    const PinQueue::Ticket place = line().acquire(std::atomic<bool>(false), kLong).value();
    held.give();
    over.take();
    const std::string say = "echo >&" + std::to_string(running.writing_end()) + "; exec sleep 1000";
    ::execl("/bin/sh", "sh", "-c", say.c_str(), static_cast<char*>(nullptr));
    std::_Exit(1);
  });
  held.take();
  PinQueue::Ticket place = enter();
  EXPECT_FALSE(place.poll());
  over.give();
  running.take();
  EXPECT_TRUE(place.poll());
}

// What processes share.
struct Counts {
  std::atomic<int> ready{0}, inside{0}, met{0}, all{0}, overtaken{0};
};

// Whoever has a place is overtaken by nobody: only those before it have a turn first, one each.
TEST_F(NodeLockTest, three_processes_in_loops_never_meet_and_none_is_left_behind) {
  void* shared = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& counts = *new (shared) Counts;
  {
    std::vector<std::unique_ptr<Process>> processes;
    for (int i = 0; i < 3; ++i) {
      processes.push_back(std::make_unique<Process>([&] {
        ++counts.ready;
        while (counts.ready < 3) std::this_thread::yield();
        while (counts.all < 300) {
          PinQueue::Ticket place = enter();
          int before = -1;  // how many had had their turn when we stood in line
          for (bool ours = false; !ours;) {
            ours = place.poll();
            if (before < 0 && place.in_line()) before = counts.all;
            if (!ours) std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
          counts.met += counts.inside++ > 0;
          counts.overtaken += counts.all - before > 2;
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          ++counts.all;
          --counts.inside;
        }
      }));
    }
    for (const auto& process : processes) EXPECT_EQ(process->join(), 0);
  }
  EXPECT_EQ(counts.met, 0);
  EXPECT_EQ(counts.overtaken, 0);
  ::munmap(shared, sizeof(Counts));
}

TEST_F(NodeLockTest, threads_of_one_process_stand_in_line_as_well) {
  std::atomic<int> inside{0}, met{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const PinQueue::Ticket place = line().acquire(std::atomic<bool>(false), kLong).value();
        met += inside++ > 0;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, 0);
}

TEST_F(NodeLockTest, a_wait_ends_when_it_is_told_to_or_has_lasted_long_enough) {
  PinQueue::Ticket holder = enter();
  EXPECT_TRUE(holder.poll());
  std::atomic<bool> stop{false};
  Result<PinQueue::Ticket> late = line().acquire(stop, std::chrono::milliseconds(1));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::timed_out);
  std::thread waiter([&] {
    const Result<PinQueue::Ticket> stopped = line().acquire(stop, kLong);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, Errc::closed);
  });
  stop = true;
  waiter.join();
  holder.leave();
  EXPECT_TRUE(line().acquire(stop, kLong)) << "no wait was needed";
  EXPECT_TRUE(line().acquire(stop, std::chrono::nanoseconds(0)));
}

TEST_F(NodeLockTest, a_directory_that_cannot_be_used_is_named) {
  const auto refused = [&](const std::filesystem::path& directory, const std::string& why) {
    const Result<PinQueue::Ticket> place = PinQueue("pinning", {directory}).enter();
    EXPECT_FALSE(place) << directory;
    if (place) return;
    EXPECT_EQ(place.error().code, Errc::unsupported);
    EXPECT_NE(place.error().message.find(directory.string()), std::string::npos) << place.error().message;
    EXPECT_NE(place.error().message.find(why), std::string::npos) << place.error().message;
  };
  refused(directory_ / "missing" / "ebbtide", "ENOENT");
  std::ofstream(directory_ / "file") << "x";
  refused(directory_ / "file", "no directory");
  std::filesystem::create_directory_symlink(directory_, directory_ / "link");
  refused(directory_ / "link", "no directory");

  std::filesystem::create_directory(directory_ / "open");
  ::chmod((directory_ / "open").c_str(), 0777);
  refused(directory_ / "open", "others may write to it");

  std::filesystem::path others = "/";  // root's
  if (::geteuid() == 0) {
    others = directory_ / "others";
    std::filesystem::create_directory(others);
    ASSERT_EQ(::chown(others.c_str(), 12345, 12345), 0);
  }
  refused(others, "belongs to user");

  // No file can be opened to be written where its name is taken by a directory, whoever asks.
  std::filesystem::create_directories(directory_ / "taken" / "pinning.lock");
  refused(directory_ / "taken", "EISDIR");

  // The first that can be used is.
  PinQueue second("pinning", {directory_ / "open", directory_ / "ebbtide"});
  PinQueue::Ticket place = second.enter().value();
  EXPECT_TRUE(place.poll());
  EXPECT_FALSE(enter().poll());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "ebbtide" / "pinning.lock"));
}

TEST_F(NodeLockTest, lines_of_other_names_are_others) {
  PinQueue::Ticket one = enter();
  PinQueue::Ticket two = PinQueue("mapping", {directory_ / "ebbtide"}).enter().value();
  EXPECT_TRUE(one.poll());
  EXPECT_TRUE(two.poll());
}

TEST(NodeLockDirectories, are_the_users_own) {
  const std::filesystem::path shared = "/dev/shm/ebbtide-" + std::to_string(::geteuid());
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before ? before : "";
  ::setenv("XDG_RUNTIME_DIR", "/somewhere", 1);
  EXPECT_EQ(PinQueue::usual_directories(), (std::vector<std::filesystem::path>{"/somewhere/ebbtide", shared}));
  ::setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(PinQueue::usual_directories(), std::vector{shared});
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(PinQueue::usual_directories(), std::vector{shared});
  if (before) ::setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
}

}  // namespace
}  // namespace ebb::platform
