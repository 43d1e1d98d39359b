// The lenders of ebbtide/node.hpp.
#include <algorithm>
#include <tuple>

#include "ebbtide/node.hpp"
#include "share/leases/lender_file.hpp"

namespace ebb::admin {

Result<std::vector<Lender>> lenders() {
  const share::NodeSeams seams = share::NodeSeams::usual();
  os::PosixFiles files;
  const auto names = share::find_lenders(*seams.memory, files);
  if (!names) return names.error();
  std::vector<Lender> all;
  for (const share::LenderName& name : *names) {
    const auto state = share::read_lender(*seams.memory, name);
    if (!state || !*state) continue;  // it is gone since, or begins
    Lender lender{name.group, name.process.pid, (*state)->gpu, (*state)->offered, planner::share_of((*state)->link),
                  {}};
    lender.leases_not_shown = (*state)->not_shown;
    for (const share::LeaseRow& lease : (*state)->leases) {
      lender.leases.push_back({lender.pid, lease.borrower, lease.bytes, planner::name_of(lease.state)});
    }
    all.push_back(std::move(lender));
  }
  std::ranges::sort(all, {}, [](const Lender& one) { return std::tie(one.group, one.pid); });
  return all;
}

}  // namespace ebb::admin
