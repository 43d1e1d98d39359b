// actor_program ROLE FILE [...]: programs whose run the tests disturb. What they say goes to stdout at once; "stdin"
// means that they wait for a line there.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

void say(const std::string& text) {
  if (::write(1, (text + "\n").data(), text.size() + 1) < 0) ::_exit(9);
}
void wait_for_line() {
  char c = 0;
  while (::read(0, &c, 1) == 1 && c != '\n') {
  }
}
std::string result(long done) { return done < 0 ? std::strerror(errno) : std::to_string(done); }
std::string record(int number) {
  std::string text = std::to_string(number);
  return std::string(999 - text.size(), '.') + text + "\n";
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const std::string role = words[1], file = words[2];
  if (role == "records") {  // FILE [COUNT]: says each record's number when write() has returned
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0644), most = count > 3 ? std::atoi(words[3]) : 1 << 30;
    for (int i = 0; i < most; ++i) {
      if (::write(fd, record(i).data(), 1000) != 1000) return 3;
      say(std::to_string(i));
    }
    say("end");
    wait_for_line();
    for (int i = most; i < most + 5; ++i) {
      if (::write(fd, record(i).data(), 1000) != 1000) return 3;
    }
    return 0;
  }
  if (role == "error") {  // FILE CALL: stdin, a write, then the call that must tell of its failure
    say("ready");
    wait_for_line();
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0644);
    const std::string bytes(200000, 'x'), call = words[3];
    say(result(::write(fd, bytes.data(), bytes.size())));
    if (call != "nothing") ::lseek(fd, 0, SEEK_DATA);  // which waits until the writer has tried
    if (call == "write") say(result(::write(fd, "y", 1)));
    if (call == "fsync") say(result(::fsync(fd)));
    if (call == "close") say(result(::close(fd)));
    return 0;
  }
  if (role == "rename") {  // FILE NEW: a file of 3 MB gets its name
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0644);
    const std::string bytes(3000000, 'x');
    say(result(::write(fd, bytes.data(), bytes.size())));
    say(result(::rename(file.c_str(), words[3])));
    wait_for_line();
    return 0;
  }
  if (role == "sync") {  // FILE: fsync, then stdin
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0644);
    const std::string bytes(3000000, 'x');
    say(result(::write(fd, bytes.data(), bytes.size())));
    say(result(::fsync(fd)));
    wait_for_line();
    return 0;
  }
  if (role == "append") {  // FILE PROCESSES RECORDS: each process appends numbered records of 1000 bytes
    const int processes = std::atoi(words[3]), records = std::atoi(words[4]);
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      children.push_back(::fork());
      if (children.back()) continue;
      const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      for (int j = 0; j < records; ++j) {
        if (::write(fd, record(i * records + j).data(), 1000) != 1000) ::_exit(1);
      }
      ::_exit(0);
    }
    int bad = 0;
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      bad += status != 0;
    }
    return bad;
  }
  if (role == "fill") {  // FILE: writes until there is no room, and says what it got
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0644);
    const std::string bytes(300001, 'x');
    long total = 0, got = 0;
    while ((got = ::write(fd, bytes.data(), bytes.size())) > 0) total += got;
    say(result(got));
    say(std::to_string(total));
    say(std::to_string(::lseek(fd, 0, SEEK_END)));
    return 0;
  }
  return 2;
}
