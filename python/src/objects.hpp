#pragma once
// The classes of ebbtide._core, and what binds each.
#include <memory>
#include <nanobind/nanobind.h>
#include <string>
#include <vector>

#include "state.hpp"

namespace ebb::python {

struct HistoryObject {
  std::shared_ptr<State> state;
  ebb::History history;
};

struct StoreObject : HistoryObject {};

class FutureObject {
 public:
  FutureObject(std::shared_ptr<State> state, ebb::Future future, std::shared_ptr<Held> held);
  ~FutureObject();
  bool done(std::optional<std::string> level);
  void wait(std::optional<std::string> level, std::optional<double> timeout);
  nb::object error();
  nb::object result(std::optional<double> timeout);

 private:
  Result<void> wait_for(const std::string& level, std::optional<double> timeout);
  std::shared_ptr<State> state_;
  ebb::Future future_;
  std::shared_ptr<Held> held_;  ///< null for a checkpoint's future
};

/// Memory of the device cache, lent to Python: what Reservation and Loan have in common. It exports its bytes as a
/// buffer and counts the exports, since a NumPy view of them may outlive every promise.
class Lent {
 public:
  Lent(std::shared_ptr<State> state, Version version, std::string dtype, std::vector<std::int64_t> shape)
      : state_(std::move(state)), version_(version), dtype_(std::move(dtype)), shape_(std::move(shape)) {}
  virtual ~Lent() = default;
  virtual void* data() = 0;
  virtual std::size_t bytes() = 0;
  virtual bool writable() const = 0;
  virtual void last_view_gone() {}
  bool ended() const { return ended_; }
  /// A view of the memory; raises closed when it was given back already.
  nb::object array(nb::handle self);
  Version version() const { return version_; }

  int exports = 0;

 protected:
  void require_open(const char* what) const;
  std::shared_ptr<State> state_;
  Version version_;
  std::string dtype_;
  std::vector<std::int64_t> shape_;
  bool ended_ = false;
  std::vector<nb::object> views_;  ///< weak references to the arrays handed out
};

class ReservationObject : public Lent {
 public:
  ReservationObject(std::shared_ptr<State> state, Version version, std::string dtype, std::vector<std::int64_t> shape,
                    ebb::Reservation reservation);
  ~ReservationObject() override;
  void* data() override { return reservation_.data(); }
  std::size_t bytes() override { return reservation_.bytes(); }
  bool writable() const override { return true; }
  void commit();
  void abandon();

 private:
  void end();
  std::shared_ptr<const void> mapping_;  // arrays keep this object, and with it the memory under them
  ebb::Reservation reservation_;
};

class LoanObject : public Lent {
 public:
  LoanObject(std::shared_ptr<State> state, Version version, const Layout& layout, std::vector<RegionInfo> regions,
             ebb::Loan loan, bool keep);
  ~LoanObject() override;
  void* data() override { return const_cast<std::byte*>(loan_.data()); }
  std::size_t bytes() override { return loan_.bytes(); }
  bool writable() const override { return false; }
  void last_view_gone() override;
  void release(bool keep);
  void end_block(bool failed) { release(failed); }
  /// The arrays in the structure in which they were written, read-only.
  nb::object arrays(nb::handle self);

 private:
  Layout layout_;
  std::vector<RegionInfo> regions_;
  bool keep_ = false, given_back_ = false;
  ebb::Loan loan_;
};

nb::dict to_dict(const Stats& stats);
Version to_version(nb::handle version);

void bind_future(nb::module_& module);
void bind_lease(nb::module_& module);
void bind_history(nb::module_& module);
void bind_open(nb::class_<StoreObject, HistoryObject>& store);
void bind_machine(nb::module_& module);
void bind_sim(nb::module_& module);

}  // namespace ebb::python
