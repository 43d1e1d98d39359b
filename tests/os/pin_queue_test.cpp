// The queue of a node's processes, with real processes that are really killed.
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
#include <stop_token>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ebb::os {
namespace {

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

[[noreturn]] void sleep_forever() {
  for (;;) ::pause();
}

class NodePinQueueTest : public ::testing::Test {
 protected:
  NodePinQueueTest() {
    std::string name = (std::filesystem::temp_directory_path() / "ebb-queue-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no directory for the test");
    directory_ = name;
  }
  ~NodePinQueueTest() override { std::filesystem::remove_all(directory_); }
  // In it, without a ticket.
  struct Member {
    explicit Member(const std::filesystem::path& directory, const char* name = "pin") : queue(name, {directory}) {
      queue.enter().value();
    }
    NodePinQueue queue;
    bool poll() { return queue.poll(); }
    void again() { queue.enter().value(); }
  };
  std::filesystem::path directory() const { return directory_ / "ebbtide"; }
  std::unique_ptr<Member> enter() const { return std::make_unique<Member>(directory()); }
  std::filesystem::path directory_;
};

TEST_F(NodePinQueueTest, calls_one_at_a_time_and_in_order) {
  const auto a = enter(), b = enter(), c = enter();
  EXPECT_FALSE(a->queue.has_ticket());
  EXPECT_TRUE(a->poll());
  EXPECT_TRUE(a->queue.has_ticket());
  EXPECT_TRUE(a->poll()) << "it stays called";
  EXPECT_FALSE(b->poll());
  EXPECT_FALSE(c->poll());
  a->again();  // the called one is last again
  EXPECT_FALSE(a->poll());
  EXPECT_FALSE(c->poll()) << "b came before";
  EXPECT_TRUE(b->poll());
  b->queue.leave();
  EXPECT_FALSE(b->poll()) << "it left";
  EXPECT_FALSE(b->queue.has_ticket());
  EXPECT_FALSE(a->poll());
  EXPECT_TRUE(c->poll());
  c->queue.leave();
  EXPECT_TRUE(a->poll());
}

TEST_F(NodePinQueueTest, is_a_queue_whoever_leaves_it_and_when) {
  std::vector<std::unique_ptr<Member>> queue;  // as they took their tickets
  std::srand(7);
  for (int round = 0; round < 2000; ++round) {
    if (queue.size() < 5 && std::rand() % 2) {
      queue.push_back(enter());
      queue.back()->poll();
    } else if (!queue.empty()) {
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(std::rand()) % queue.size()));
    }
    for (std::size_t i = 0; i < queue.size(); ++i) ASSERT_EQ(queue[i]->poll(), i == 0) << round;
  }
}

TEST_F(NodePinQueueTest, calls_the_next_one_when_a_process_is_killed) {
  Signal called;
  Process first([&] {
    EXPECT_TRUE(enter().release()->queue.wait({}));
    called.give();
    sleep_forever();
  });
  called.take();
  Signal waits;
  Process second([&] {
    EXPECT_FALSE(enter().release()->poll());
    waits.give();
    sleep_forever();
  });
  waits.take();
  const auto third = enter();
  EXPECT_FALSE(third->poll());
  first.kill();
  EXPECT_FALSE(third->poll()) << "another one waits";
  second.kill();
  EXPECT_TRUE(third->poll());
}

TEST_F(NodePinQueueTest, a_child_neither_has_nor_keeps_the_ticket_of_its_parent) {
  Signal held, never;
  Process holder([&] {
    NodePinQueue queue("pin", {directory()});
    EXPECT_TRUE(queue.wait({}));
    const pid_t child = ::fork();
    if (child == 0) {
      EXPECT_FALSE(queue.poll());
      EXPECT_FALSE(queue.has_ticket());
      // Not the child's to leave: the number of the descriptor is another file's by now.
      std::array<int, 8> files{};
      for (int& file : files) file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      const auto own = enter();
      EXPECT_FALSE(own->poll()) << "the parent is called";
      own->queue.leave();
      queue.leave();
      for (const int file : files) EXPECT_NE(::fcntl(file, F_GETFD), -1);
      held.give();
      never.take();  // the end of the test
      std::_Exit(0);
    }
    sleep_forever();
  });
  held.take();
  const auto other = enter();
  EXPECT_FALSE(other->poll());
  holder.kill();
  EXPECT_TRUE(other->poll()) << "the child lives, and has a copy of nothing";
  never.give();
}

TEST_F(NodePinQueueTest, one_process_takes_a_ticket_at_a_time) {
  const auto other = enter();
  Signal inside;
  Process taking([&] {
    // The lock that is held while a ticket is taken: otherwise two that saw the same end of the queue could share a
    // place.
    struct flock door{};
    door.l_type = F_WRLCK;
    door.l_len = 1;
    const int file = ::open((directory() / "pin.lock").c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(::fcntl(file, F_OFD_SETLK, &door), 0);
    inside.give();
    sleep_forever();
  });
  inside.take();
  EXPECT_FALSE(other->poll());
  taking.kill();
  EXPECT_TRUE(other->poll());
}

TEST_F(NodePinQueueTest, another_program_does_not_keep_the_ticket) {
  Signal held, over, running, never;
  Process holder([&] {
    NodePinQueue queue("pin", {directory()});
    EXPECT_TRUE(queue.wait({}));
    held.give();
    over.take();
    const std::string say = "echo >&" + std::to_string(running.writing_end()) + "; exec sleep 1000";
    ::execl("/bin/sh", "sh", "-c", say.c_str(), static_cast<char*>(nullptr));
    std::_Exit(1);
  });
  held.take();
  const auto other = enter();
  EXPECT_FALSE(other->poll());
  over.give();
  running.take();
  EXPECT_TRUE(other->poll());
}

// What processes share.
struct Counts {
  std::atomic<int> ready{0}, inside{0}, met{0}, all{0}, overtaken{0};
};

// No ticket is overtaken: only the earlier ones are called first, once each.
TEST_F(NodePinQueueTest, three_processes_in_loops_never_meet_and_none_is_left_behind) {
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
          const auto member = enter();
          int before = -1;  // how many had been called when we took the ticket
          for (bool ours = false; !ours;) {
            ours = member->poll();
            if (before < 0 && member->queue.has_ticket()) before = counts.all;
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

TEST_F(NodePinQueueTest, threads_of_one_process_wait_for_each_other_as_well) {
  std::atomic<int> inside{0}, met{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      NodePinQueue queue("pin", {directory()});
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(queue.wait({}));
        met += inside++ > 0;
        std::this_thread::yield();
        --inside;
        queue.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, 0);
}

TEST_F(NodePinQueueTest, a_wait_ends_when_it_is_told_to) {
  const auto first = enter();
  EXPECT_TRUE(first->poll());
  NodePinQueue queue("pin", {directory()});
  std::stop_source stop;
  std::thread waiter([&] { EXPECT_FALSE(queue.wait(stop.get_token())); });
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(queue.has_ticket());
  first->queue.leave();
  EXPECT_TRUE(queue.wait(stop.get_token())) << "no wait was needed";
  EXPECT_EQ(queue.trouble(), "");
}

TEST_F(NodePinQueueTest, a_queue_that_cannot_be_had_holds_up_nobody_and_is_tried_again) {
  NodePinQueue one("pin", {directory_ / "late" / "queue"}), other("pin", {directory_ / "late" / "queue"});
  EXPECT_TRUE(NodePinQueue("pin", {}).wait({}));
  EXPECT_TRUE(one.wait({}));
  EXPECT_TRUE(other.wait({}));
  EXPECT_NE(one.trouble().find("ENOENT"), std::string::npos) << one.trouble();
  one.leave();
  std::filesystem::create_directory(directory_ / "late");
  EXPECT_TRUE(one.wait({}));
  EXPECT_EQ(one.trouble(), "");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(other.wait(stop.get_token())) << "it waits for the first one";
}

TEST_F(NodePinQueueTest, a_directory_that_cannot_be_used_is_named) {
  const auto refused = [&](const std::filesystem::path& directory, const std::string& why) {
    const Result<void> entered = NodePinQueue("pin", {directory}).enter();
    EXPECT_FALSE(entered) << directory;
    if (entered) return;
    EXPECT_EQ(entered.error().code, Errc::unsupported);
    EXPECT_NE(entered.error().message.find(directory.string()), std::string::npos) << entered.error().message;
    EXPECT_NE(entered.error().message.find(why), std::string::npos) << entered.error().message;
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

  // No user can open a file for writing if a directory has its name.
  std::filesystem::create_directories(directory_ / "taken" / "pin.lock");
  refused(directory_ / "taken", "EISDIR");

  // The first that can be used is.
  NodePinQueue second("pin", {directory_ / "open", directory()});
  second.enter().value();
  EXPECT_TRUE(second.poll());
  EXPECT_FALSE(enter()->poll());
  EXPECT_TRUE(std::filesystem::exists(directory() / "pin.lock"));
}

TEST_F(NodePinQueueTest, queues_of_other_names_are_others) {
  Member one(directory()), two(directory(), "map");
  EXPECT_TRUE(one.poll());
  EXPECT_TRUE(two.poll());
}

TEST(NodePinQueueDirectories, are_the_users_own) {
  const std::filesystem::path shared = "/dev/shm/ebbtide-" + std::to_string(::geteuid());
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before ? before : "";
  ::setenv("XDG_RUNTIME_DIR", "/somewhere", 1);
  EXPECT_EQ(NodePinQueue::usual_directories(), (std::vector<std::filesystem::path>{"/somewhere/ebbtide", shared}));
  ::setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(NodePinQueue::usual_directories(), std::vector{shared});
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(NodePinQueue::usual_directories(), std::vector{shared});
  if (before) ::setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
}

}  // namespace
}  // namespace ebb::os
