#include "base/own_process.hpp"

#include <memory>

#include "child.hpp"

namespace ebb::store {
namespace {

using testing_support::in_a_child;

struct Counted {
  explicit Counted(int& ends) : ends(ends) {}
  ~Counted() { ++ends; }
  int& ends;
};

TEST(InOwnProcess, EndsWithItsLastOwner) {
  int ends = 0;
  std::shared_ptr<Counted> shared(new Counted(ends), base::InOwnProcess{});
  std::shared_ptr<const void> other = shared;
  shared.reset();
  EXPECT_EQ(ends, 0);
  other.reset();
  EXPECT_EQ(ends, 1);
  std::unique_ptr<Counted, base::InOwnProcess>(new Counted(ends)).reset();
  EXPECT_EQ(ends, 2);
}

TEST(InOwnProcess, StaysInAChildAndEndsInTheParent) {
  int ends = 0;
  std::shared_ptr<Counted> shared(new Counted(ends), base::InOwnProcess{});
  std::unique_ptr<Counted, base::InOwnProcess> unique(new Counted(ends));
  EXPECT_EQ(in_a_child([&] {
              shared.reset();
              unique.reset();
              const int in_child = ends;
              std::shared_ptr<Counted>(new Counted(ends), base::InOwnProcess{}).reset();  // the child's own
              return in_child * 10 + ends;
            }),
            1);
  shared.reset();
  EXPECT_EQ(ends, 1);
  unique.reset();
  EXPECT_EQ(ends, 2);
}

}  // namespace
}  // namespace ebb::store
