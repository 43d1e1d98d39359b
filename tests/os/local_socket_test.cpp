#include "os/local_socket.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/doubles/fake_sockets.hpp"

namespace ebb::os::testing {
namespace {

namespace fs = std::filesystem;
using Kind = Received::Kind;
constexpr std::chrono::milliseconds kNow{0}, kLong{60'000};

struct Place {
  fs::path directory;
  std::unique_ptr<LocalSockets> sockets;
  ~Place() {
    if (!directory.empty()) fs::remove_all(directory);
  }
};
using MakePlace = std::function<std::unique_ptr<Place>()>;

// Its name must be short.
fs::path new_directory() {
  std::string name = "/tmp/ebb-sock-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory for the test: " + name);
  return name;
}

std::unique_ptr<Place> in_a_directory() {
  auto place = std::make_unique<Place>();
  place->directory = new_directory();
  place->sockets = std::make_unique<UnixSockets>(std::vector{place->directory / "ebbtide"});
  return place;
}
std::unique_ptr<Place> doubled() {
  auto place = std::make_unique<Place>();
  place->sockets = std::make_unique<doubles::FakeSockets>();
  return place;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct Pair {
  std::unique_ptr<LocalConnection> client, server;
};

class LocalSocketContract : public ::testing::TestWithParam<std::pair<const char*, MakePlace>> {
 protected:
  Pair connected() {
    auto client = sockets_.connect("agent").value();
    if (!client || !ready(listener_->fd())) throw std::runtime_error("no connection");
    auto server = listener_->accept().value();
    if (!server) throw std::runtime_error("no connection to accept");
    return {std::move(client), std::move(server)};
  }
  bool ready(int fd, std::chrono::milliseconds limit = kNow, bool to_send = false) {
    Waiting one{fd, to_send};
    return sockets_.wait({&one, 1}, limit).value() == 1 && one.ready;
  }
  // The next message as text; "-": none yet; "!": closed.
  std::string next(LocalConnection& at) {
    std::vector<std::byte> into(kMaxMessage);
    const auto got = at.receive(into).value();
    if (got.kind == Kind::nothing) return "-";
    if (got.kind == Kind::closed) return "!";
    return {reinterpret_cast<const char*>(into.data()), got.bytes};
  }
  std::unique_ptr<Place> place_ = GetParam().second();
  LocalSockets& sockets_ = *place_->sockets;
  std::unique_ptr<LocalListener> listener_ = sockets_.listen("agent").value();
};

TEST_P(LocalSocketContract, messages_arrive_whole_and_in_order_both_ways) {
  Pair pair = connected();
  EXPECT_EQ(pair.client->peer(), ::getpid());
  EXPECT_EQ(pair.server->peer(), ::getpid());
  EXPECT_EQ(next(*pair.server), "-");
  EXPECT_FALSE(ready(pair.server->fd()));
  for (const char* text : {"first", "2", "third"}) EXPECT_TRUE(pair.client->send(bytes_of(text)).value());
  EXPECT_TRUE(ready(pair.server->fd(), kLong));
  for (const char* text : {"first", "2", "third", "-"}) EXPECT_EQ(next(*pair.server), text);
  EXPECT_TRUE(pair.server->send(bytes_of(std::string(kMaxMessage, 'x'))).value());
  EXPECT_EQ(next(*pair.client), std::string(kMaxMessage, 'x'));
}

TEST_P(LocalSocketContract, a_length_that_is_none_is_refused) {
  Pair pair = connected();
  EXPECT_EQ(pair.client->send({}).error().code, Errc::invalid_argument);
  EXPECT_EQ(pair.client->send(bytes_of(std::string(kMaxMessage + 1, 'x'))).error().code, Errc::invalid_argument);
  EXPECT_EQ(next(*pair.server), "-");
}

TEST_P(LocalSocketContract, a_message_that_is_too_long_is_an_error_and_the_next_arrives) {
  Pair pair = connected();
  pair.client->send(bytes_of("too long")).value();
  ASSERT_EQ(::send(pair.client->fd(), std::string(kMaxMessage + 1, 'x').data(), kMaxMessage + 1, 0),
            static_cast<ssize_t>(kMaxMessage + 1));
  pair.client->send(bytes_of("next")).value();
  std::array<std::byte, 7> small;
  const auto refused = pair.server->receive(small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::damaged);
  EXPECT_NE(refused.error().message.find("8 bytes: expected at most 7"), std::string::npos) << refused.error().message;
  std::vector<std::byte> large(kMaxMessage);
  EXPECT_EQ(pair.server->receive(large).error().code, Errc::damaged);
  EXPECT_EQ(next(*pair.server), "next");
}

TEST_P(LocalSocketContract, a_peer_that_leaves_is_closed_after_its_last_message) {
  Pair pair = connected();
  pair.client->send(bytes_of("last words")).value();
  pair.server->send(bytes_of("never received")).value();
  pair.client.reset();
  EXPECT_TRUE(ready(pair.server->fd(), kLong));
  EXPECT_EQ(next(*pair.server), "last words");
  EXPECT_EQ(next(*pair.server), "!");
  EXPECT_EQ(next(*pair.server), "!");
  EXPECT_EQ(pair.server->send(bytes_of("anyone?")).error().code, Errc::closed);
}

TEST_P(LocalSocketContract, a_full_queue_waits_for_nothing_and_can_be_waited_for) {
  Pair pair = connected();
  const std::string block(kMaxMessage, 'x');
  int sent = 0;
  while (pair.client->send(bytes_of(block)).value()) ASSERT_LT(++sent, 1000);
  EXPECT_GT(sent, 0);
  EXPECT_FALSE(ready(pair.client->fd(), kNow, true));
  while (next(*pair.server) != "-") --sent;
  EXPECT_EQ(sent, 0);
  EXPECT_TRUE(ready(pair.client->fd(), kLong, true));
  EXPECT_TRUE(pair.client->send(bytes_of(block)).value());
}

TEST_P(LocalSocketContract, one_of_several_is_waited_for) {
  Pair one = connected(), two = connected();
  std::array all{Waiting{listener_->fd()}, Waiting{one.server->fd()}, Waiting{two.server->fd()}};
  EXPECT_EQ(sockets_.wait(all, kNow).value(), 0u);
  two.client->send(bytes_of("x")).value();
  EXPECT_EQ(sockets_.wait(all, kLong).value(), 1u);
  EXPECT_TRUE(all[2].ready && !all[0].ready && !all[1].ready);
  const auto third = sockets_.connect("agent").value();
  EXPECT_EQ(sockets_.wait(all, kLong).value(), 2u);
  EXPECT_TRUE(all[0].ready);
}

TEST_P(LocalSocketContract, a_name_has_one_listener_and_is_free_when_it_ends) {
  EXPECT_EQ(sockets_.listen("agent").error().code, Errc::in_use);
  EXPECT_EQ(sockets_.connect("other").value(), nullptr);
  EXPECT_EQ(sockets_.connect("a/b").error().code, Errc::invalid_argument);
  EXPECT_EQ(sockets_.listen("").error().code, Errc::invalid_argument);
  auto waiting = sockets_.connect("agent").value();
  listener_.reset();
  EXPECT_EQ(next(*waiting), "!");
  EXPECT_EQ(sockets_.connect("agent").value(), nullptr);
  EXPECT_NE(sockets_.listen("agent").value(), nullptr);
}

TEST_P(LocalSocketContract, a_descriptor_travels_with_its_message) {
  Pair pair = connected();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  pair.client->send(bytes_of("pipe"), pipe[1]).value();
  pair.client->send(bytes_of("none")).value();
  std::vector<std::byte> into(kMaxMessage);
  {
    const auto got = pair.server->receive(into).value();
    EXPECT_EQ(got.bytes, 4u);
    ASSERT_TRUE(got.descriptor);
    EXPECT_NE(got.descriptor.fd(), pipe[1]);
    EXPECT_EQ(::fcntl(got.descriptor.fd(), F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::write(got.descriptor.fd(), "x", 1), 1);
  }
  EXPECT_FALSE(pair.server->receive(into).value().descriptor);
  ::close(pipe[1]);
  std::array<char, 2> both{};
  EXPECT_EQ(::read(pipe[0], both.data(), 2), 1);
  EXPECT_EQ(::read(pipe[0], both.data(), 2), 0);  // the received one was closed
  ::close(pipe[0]);
}

TEST_P(LocalSocketContract, two_descriptors_are_an_error_and_neither_stays_open) {
  Pair pair = connected();
  for (const int count : {2, 5}) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    char byte = 'x';
    iovec bytes{&byte, 1};
    alignas(cmsghdr) std::array<unsigned char, CMSG_SPACE(5 * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(static_cast<std::size_t>(count) * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(static_cast<std::size_t>(count) * sizeof(int));
    for (std::size_t i = 0; i < 5; ++i) std::memcpy(CMSG_DATA(part) + i * sizeof(int), &pipe[1], sizeof(int));
    ASSERT_EQ(::sendmsg(pair.client->fd(), &header, 0), 1);
    std::vector<std::byte> into(kMaxMessage);
    const auto refused = pair.server->receive(into);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::damaged) << refused.error().message;
    ::close(pipe[1]);
    EXPECT_EQ(::read(pipe[0], &byte, 1), 0);
    ::close(pipe[0]);
  }
}

TEST_P(LocalSocketContract, a_process_that_runs_is_not_gone) {
  Pair pair = connected();
  pair.client->send(bytes_of("me"), sockets_.this_process().value().fd()).value();
  std::vector<std::byte> into(kMaxMessage);
  const auto got = pair.server->receive(into).value();
  EXPECT_FALSE(sockets_.gone(got.descriptor).value());
}

INSTANTIATE_TEST_SUITE_P(, LocalSocketContract,
                         ::testing::Values(std::pair<const char*, MakePlace>("unix", in_a_directory),
                                           std::pair<const char*, MakePlace>("double", doubled)),
                         [](const auto& info) { return std::string(info.param.first); });

class UnixSocketsTest : public ::testing::Test {
 protected:
  fs::path socket() const { return place_->directory / "ebbtide" / "agent"; }
  std::unique_ptr<Place> place_ = in_a_directory();
  LocalSockets& sockets_ = *place_->sockets;
};

TEST_F(UnixSocketsTest, a_killed_child_is_gone_and_its_listener_is_replaced) {
  const auto listener = sockets_.listen("parent").value();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto heir = sockets_.listen("agent").value();
    const auto to_parent = sockets_.connect("parent").value();
    to_parent->send(bytes_of("me"), sockets_.this_process().value().fd()).value();
    for (;;) ::pause();
  }
  Waiting waiting{listener->fd()};
  while (sockets_.wait({&waiting, 1}, kLong).value() == 0) {
  }
  const auto connection = listener->accept().value();
  EXPECT_EQ(connection->peer(), child);
  waiting.fd = connection->fd();
  while (sockets_.wait({&waiting, 1}, kLong).value() == 0) {
  }
  std::array<std::byte, 16> into;
  auto got = connection->receive(into).value();
  ASSERT_TRUE(got.descriptor);
  EXPECT_FALSE(sockets_.gone(got.descriptor).value());
  EXPECT_EQ(sockets_.listen("agent").error().code, Errc::in_use);
  ::kill(child, SIGKILL);
  waiting.fd = got.descriptor.fd();
  while (sockets_.wait({&waiting, 1}, kLong).value() == 0) {
  }
  EXPECT_TRUE(sockets_.gone(got.descriptor).value());
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(sockets_.gone(got.descriptor).value());
  EXPECT_EQ(connection->receive(into).value().kind, Kind::closed);
  EXPECT_TRUE(fs::exists(socket()));  // the dead one's
  EXPECT_EQ(sockets_.connect("agent").value(), nullptr);
  EXPECT_NE(sockets_.listen("agent").value(), nullptr);
}

TEST_F(UnixSocketsTest, who_listens_while_another_ends_succeeds_or_is_told_that_it_listens) {
  for (int round = 0; round < 500; ++round) {
    auto ending = sockets_.listen("agent").value();
    std::thread end([&] { ending.reset(); });
    auto next = sockets_.listen("agent");
    while (!next && next.error().code == Errc::in_use) next = sockets_.listen("agent");
    end.join();
    ASSERT_TRUE(next) << next.error().message;
    ASSERT_NE(sockets_.connect("agent").value(), nullptr) << "the one that ended took the name of the next along";
  }
}

TEST_F(UnixSocketsTest, a_child_that_ends_takes_nothing_along) {
  const auto listener = sockets_.listen("agent").value();
  const auto client = sockets_.connect("agent").value();
  auto server = listener->accept().value();
  const pid_t child = ::fork();
  if (child == 0) {
    // Its copies are closed: its end says nothing to the peer, and removes no name.
    const bool closed = !client->send(bytes_of("x"));
    std::_Exit(closed ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  client->send(bytes_of("still here")).value();
  server.reset();
  EXPECT_NE(sockets_.connect("agent").value(), nullptr);
}

TEST_F(UnixSocketsTest, a_socket_is_this_users_alone) {
  const mode_t before = ::umask(0);
  const auto listener = sockets_.listen("agent").value();
  ::umask(before);
  struct stat found{};
  ASSERT_EQ(::lstat(socket().c_str(), &found), 0);
  EXPECT_TRUE(S_ISSOCK(found.st_mode));
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  ASSERT_EQ(::lstat(socket().parent_path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
}

TEST_F(UnixSocketsTest, a_planted_file_or_link_is_not_replaced) {
  static_cast<void>(sockets_.connect("agent").value());  // creates the directory
  std::ofstream(socket()) << "a file";
  EXPECT_EQ(sockets_.listen("agent").error().code, Errc::io_error);
  fs::remove(socket());
  fs::create_symlink("/nowhere", socket());
  EXPECT_EQ(sockets_.listen("agent").error().code, Errc::io_error);
  EXPECT_TRUE(fs::is_symlink(socket()));
}

TEST_F(UnixSocketsTest, a_process_of_another_user_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto listener = sockets_.listen("agent").value();
  ASSERT_EQ(::chmod(place_->directory.c_str(), 0777), 0);
  ASSERT_EQ(::chmod(socket().parent_path().c_str(), 0777), 0);
  ASSERT_EQ(::chmod(socket().c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(12345) != 0) std::_Exit(2);
    // Our own client refuses such a directory; another program would not.
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket().native().copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::_Exit(3);
    char byte = 0;
    std::_Exit(::recv(fd, &byte, 1, 0) <= 0 ? 0 : 4);  // closed
  }
  Waiting waiting{listener->fd()};
  while (sockets_.wait({&waiting, 1}, kLong).value() == 0) {
  }
  const auto accepted = listener->accept();
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, Errc::not_permitted);
  EXPECT_NE(accepted.error().message.find("belongs to user 12345"), std::string::npos) << accepted.error().message;
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(UnixSocketsTest, a_long_directory_is_passed_over_for_the_next_and_named) {
  const fs::path longer = place_->directory / std::string(120, 'n');
  UnixSockets both({longer, place_->directory / "ebbtide"});
  EXPECT_NE(both.listen("agent").value(), nullptr);
  UnixSockets one({longer});
  const auto refused = one.listen("agent");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("its name is too long for a socket"), std::string::npos);
}

TEST(FakeSocketsTest, a_peer_is_gone_in_mid_message_on_command) {
  doubles::FakeSockets sockets;
  const auto listener = sockets.listen("agent").value();
  const auto client = sockets.connect("agent").value();
  const auto server = listener->accept().value();
  sockets.faults().fail_nth(doubles::SocketCall::send, 2, EPIPE);
  client->send(bytes_of("one")).value();
  EXPECT_EQ(client->send(bytes_of("two")).error().code, Errc::closed);
  std::array<std::byte, 16> into;
  EXPECT_EQ(server->receive(into).value().bytes, 3u);
  EXPECT_EQ(server->receive(into).value().kind, Kind::closed);
  EXPECT_EQ(server->send(bytes_of("three")).error().code, Errc::closed);
}

TEST(FakeSocketsTest, calls_fail_and_a_process_ends_on_command) {
  doubles::FakeSockets sockets;
  const auto listener = sockets.listen("agent").value();
  sockets.faults().fail_nth(doubles::SocketCall::connect, 1, EACCES);
  EXPECT_EQ(sockets.connect("agent").error().code, Errc::not_permitted);
  const auto client = sockets.connect("agent").value();
  sockets.faults().fail_nth(doubles::SocketCall::accept, 1, EIO);
  EXPECT_EQ(listener->accept().error().code, Errc::io_error);
  const auto server = listener->accept().value();
  sockets.faults().fail_nth(doubles::SocketCall::receive, 1, ECONNRESET);
  std::array<std::byte, 16> into;
  EXPECT_EQ(server->receive(into).value().kind, Kind::closed);
  EXPECT_EQ(client->receive(into).value().kind, Kind::closed);
  sockets.faults().fail_nth(doubles::SocketCall::wait, 1, ENOMEM);
  const auto process = sockets.this_process().value();
  EXPECT_EQ(sockets.gone(process).error().code, Errc::out_of_memory);
  EXPECT_FALSE(sockets.gone(process).value());
  sockets.end_process();
  EXPECT_TRUE(sockets.gone(process).value());
}

}  // namespace
}  // namespace ebb::os::testing
