#include "reliability/cpp/runner.hpp"

#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>

#include "reliability/cpp/judge.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::trials {
namespace {

using Kind = Step::Kind;

class Run {
 public:
  explicit Run(Runner& with) : with_(with) {
    with.options.keep_last = with.script.keep_last;
    with.options.keep_every = with.script.keep_every;
  }

  void run() {
    std::size_t last_close = 0;
    for (std::size_t i = 0; i < with_.script.steps.size(); ++i) {
      if (with_.script.steps[i].kind == Kind::close) last_close = i;
    }
    for (std::size_t i = 0; i < with_.script.steps.size(); ++i) {
      const Step& step = with_.script.steps[i];
      if (i == last_close && with_.at_end) with_.at_end(store_.get());
      if (step.kind == Kind::open)
        open(step);
      else if (store_)
        take(step);
    }
  }

 private:
  void open(const Step& step) {
    if (with_.before_open) with_.before_open(openings_++);
    auto opened = open_subject(with_.files, with_.options, [this](const Made& of, const Result<void>& how) {
      if (!how && !with_.tells_lost) return;
      std::size_t made = 0;
      {
        std::lock_guard lock(mutex_);
        const auto found = begun_.find({of.history, of.version, of.take});
        if (found == begun_.end()) return;  // none of the script's
        made = found->second;
      }
      with_.tell({how ? Event::Kind::durable : Event::Kind::lost, made});
    });
    if (!opened) return fail(step, opened.error());
    store_ = std::move(*opened);
    own_.clear();
    with_.tell({Event::Kind::opened, 0});
  }

  void take(const Step& step) {
    if (step.kind == Kind::settle) return check(step, store_->settle());
    if (step.kind == Kind::close) {
      const auto closed = store_->close();
      store_.reset();
      if (closed) with_.tell({Event::Kind::closed, 0});
      return check(step, closed);
    }
    const Made& made = with_.script.made[step.made];
    if (step.kind == Kind::write) {
      {
        std::lock_guard lock(mutex_);
        begun_[{made.history, made.version, made.take}] = step.made;
      }
      with_.tell({Event::Kind::begun, step.made});
      const auto written = store_->write(made, with_.script.contents(made));
      if (written) {
        written_.insert(step.made);
        own_.insert(step.made);
      }
      return check(step, written);
    }
    if (!written_.contains(step.made)) return;
    if (step.kind == Kind::wait && !with_.options.shared.empty() && step.made % 2 == 0) {
      const auto sent = store_->send(made.history, made.version);
      if (sent && own_.contains(step.made)) with_.tell({Event::Kind::sent, step.made});
      return check(step, sent);
    }
    if (step.kind == Kind::wait) {
      const auto waited = store_->wait(made.history, made.version);
      // Of what an earlier process wrote a store says that a writing of it is there, and not which.
      if (waited && own_.contains(step.made)) with_.tell({Event::Kind::durable, step.made});
      return check(step, waited);
    }
    with_.tell({Event::Kind::dropping, step.made});
    check(step, store_->drop(made.history, made.version));
  }

  void check(const Step& step, const Result<void>& how) {
    if (!how) fail(step, how.error());
  }
  void fail(const Step& step, const Error& error) {
    if (with_.failed) return with_.failed(step, error);
    throw std::runtime_error("step " + std::to_string(&step - with_.script.steps.data()) + " (" +
                             (step.kind == Kind::open ? "open" : name_of(with_.script.made[step.made])) +
                             ") failed: " + error.message);
  }

  Runner& with_;
  std::unique_ptr<Subject> store_;
  std::size_t openings_ = 0;
  std::set<std::size_t> written_, own_;  // by any process, and by this one
  std::mutex mutex_;
  std::map<std::tuple<std::string, Version, unsigned>, std::size_t> begun_;
};

}  // namespace

void Runner::run() { Run(*this).run(); }

void Runner::allow_dropped() {
  failed = [](const Step& step, const Error& error) {
    const bool gone = error.code == Errc::unknown_version || error.code == Errc::dropped;
    if (step.kind != Step::Kind::wait || !gone) throw std::runtime_error(error.message);
  };
}

void make_unclosed(os::Files& files, const std::filesystem::path& directory) {
  constexpr std::uint64_t kRoom = 64 << 10;
  static_cast<void>(files.remove(directory / storage::kIndexFile));
  std::vector<std::string> names;
  static_cast<void>(files.list(directory, names));
  for (const std::string& name : names) {
    if (!storage::segment_number(name)) continue;
    const auto opened = files.open(directory / name, os::Open::write, false);
    if (!opened) continue;
    const os::File file(files, static_cast<int>(opened.value), name, false);
    os::FileStatus status;
    if (files.status(file.fd(), status)) static_cast<void>(files.truncate(file.fd(), status.bytes + kRoom));
  }
}

}  // namespace ebb::trials
