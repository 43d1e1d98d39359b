#pragma once
// The classes of ebbtide._core, and the functions that bind them.
#include <atomic>
#include <memory>
#include <mutex>
#include <nanobind/nanobind.h>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "ebbtide/lent_pages.hpp"
#include "grip.hpp"
#include "state.hpp"

namespace ebb::python {

struct HistoryObject {
  std::shared_ptr<StoreState> state;
  ebb::History history;
};

struct StoreObject : HistoryObject {};

class FutureObject {
 public:
  using Pending = std::variant<ebb::Future, ebb::Snapshot>;
  FutureObject(std::shared_ptr<StoreState> state, Pending pending, std::shared_ptr<Held> held);
  ~FutureObject();
  bool done(std::optional<std::string> level);
  void wait(std::optional<std::string> level, std::optional<double> timeout);
  nb::object error();
  nb::object result(std::optional<double> timeout);
  /// Once it has ended: gives the program its arrays, and returns what failed. For threads that run no signal handler.
  nb::object settle();
  void before_write(nb::handle array, nb::handle stream);
  /// Whether only copying makes it end: `done` waits for that.
  bool fills() const { return fills_; }
  /// The store's Endings give `self` once it has ended. False: it has ended already, and they do not.
  bool tell_of_end(nb::handle self);

 private:
  Result<void> wait_for(const std::optional<std::string>& level, std::optional<double> timeout);
  void finish();  // of a restore that has ended well: gives the program its arrays
  std::optional<Error> failed() const;
  std::shared_ptr<StoreState> state_;
  Pending pending_;
  std::shared_ptr<Held> held_;  ///< null but for a restore's future
  std::mutex finishing_;
  std::atomic<std::thread::id> finisher_;  ///< that has it
  bool fills_ = false;                     ///< packed memory is still to be copied to the program's arrays
  bool told_ = false;                      ///< the store's Endings will give it
  bool unfilled_ = false;                  ///< finish() has failed: asking for the result tries again
};

/// A Future, of ebbtide/_futures.py.
nb::object new_future(const std::shared_ptr<StoreState>& state, FutureObject::Pending pending,
                      std::shared_ptr<Held> held = nullptr);

/// Device cache memory that is lent to Python: what Reservation and Loan share. In host memory it exports its bytes as
/// a buffer and counts the exports, since a NumPy view may outlive the reservation or the loan; on a GPU it hands out
/// DeviceArrays.
class Lent {
 public:
  Lent(std::shared_ptr<StoreState> state, Version version, std::optional<StreamHandle> stream)
      : state_(std::move(state)), version_(version), stream_(stream) {}
  virtual ~Lent() = default;
  virtual void* data() = 0;
  virtual std::size_t bytes() = 0;
  virtual bool writable() const = 0;
  virtual void last_view_gone() {}
  bool ended() const { return ended_; }
  bool in_host_memory() const { return !on_gpu(); }
  Version version() const { return version_; }

  int exports = 0;

 protected:
  void require_open(const char* what) const;
  bool on_gpu() const { return state_->gpu() >= 0; }
  /// How a GPU's memory is given back: ordered after `stream`, else the one given at the start, else the one on which
  /// its consumers compute; and not before they release it.
  HandBack hand_back(const std::shared_ptr<Grip>& grip, nb::handle stream) const;
  std::shared_ptr<StoreState> state_;
  Version version_;
  std::optional<StreamHandle> stream_;
  bool ended_ = false;
};

/// In host memory the program gets separate pages (LentPages): what it makes of them (a slice, a memoryview, a tensor)
/// cannot be made read-only from here, and may be written to as long as it lives (`exports` > 0).
class ReservationObject : public Lent {
 public:
  ReservationObject(std::shared_ptr<StoreState> state, Version version, LeafType type,
                    std::optional<StreamHandle> stream, nb::object like, ebb::Reservation reservation);
  void* data() override { return pages_.data() ? pages_.data() : grip_->handle.data(); }
  std::size_t bytes() override { return grip_->handle.bytes(); }
  bool writable() const override { return true; }
  /// An array over the memory; raises closed if it was given back already.
  nb::object array(nb::handle self);
  void commit(nb::handle stream, bool check);
  void abandon();

 private:
  void set_ended(bool ended);
  void lend_pages();
  LeafType type_;
  nb::object like_;
  std::shared_ptr<GripOf<ebb::Reservation>> grip_;
  LentPages pages_;                // in host memory; arrays keep this object, and with it the pages
  std::vector<nb::object> views_;  // weak references to the arrays handed out
};

class LoanObject : public Lent {
 public:
  LoanObject(std::shared_ptr<StoreState> state, Version version, const Layout& layout, std::vector<RegionInfo> regions,
             std::optional<StreamHandle> stream, ebb::Loan loan, bool keep);
  void* data() override { return const_cast<std::byte*>(grip_->handle.data()); }
  std::size_t bytes() override { return grip_->handle.bytes(); }
  bool writable() const override { return false; }
  void last_view_gone() override;
  void release(bool keep, nb::handle stream);
  /// The arrays in the structure in which they were written, read-only.
  /// `like_written`: those on a GPU are of the library that wrote them, if that takes them.
  nb::object arrays(nb::handle self, bool like_written = false);

 private:
  Layout layout_;
  std::vector<RegionInfo> regions_;
  bool keep_ = false, given_back_ = false;
  std::shared_ptr<GripOf<ebb::Loan>> grip_;
};

nb::dict to_dict(const Stats& stats, const SnapshotStats& snapshots);
nb::dict to_dict(const LeaseInfo& lease);

void bind_future(nb::module_& module);
void bind_lease(nb::module_& module);
void bind_device_array(nb::module_& module);
void bind_history(nb::module_& module);
void bind_writing(nb::class_<HistoryObject>& history);
void bind_reading(nb::class_<HistoryObject>& history);
nb::class_<StoreObject, HistoryObject> bind_store(nb::module_& module);
void bind_inspect(nb::module_& module);
void bind_files(nb::module_& module, nb::class_<StoreObject, HistoryObject>& store);
void bind_snapshot(nb::class_<StoreObject, HistoryObject>& store);
void bind_kept(nb::class_<HistoryObject>& history, nb::class_<StoreObject, HistoryObject>& store);
void bind_open(nb::module_& module, nb::class_<StoreObject, HistoryObject>& store);
void bind_machine(nb::module_& module);
void bind_node(nb::module_& module);
void bind_write_recorder(nb::module_& module);
void bind_group(nb::module_& module);

}  // namespace ebb::python
