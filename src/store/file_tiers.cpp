#include "store/file_tiers.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "store/lifetime.hpp"

namespace ebb::store {
namespace {

// Of a pool: the directory that has one for each rank.
Result<void> make_parent(os::Files& files, const std::filesystem::path& shared) {
  const std::filesystem::path parent = std::filesystem::absolute(shared).parent_path();
  const os::SysResult made = files.make_directory(parent);
  if (made || made.error == EEXIST) return {};
  return Error{Errc::io_error, "shared=\"" + parent.string() + "\" cannot be made: " + os::describe_errno(made.error)};
}

}  // namespace

Result<void> FileTiers::make() {
  const auto& tiers = setup_.machine.tiers;
  for (auto tier = static_cast<std::size_t>(port_.first_file()); tier < tiers.size(); ++tier)
    tiers_.push_back(std::make_unique<FileTier>(tiers_.size(), static_cast<planner::TierIndex>(tier),
                                                tiers_.empty() ? setup_.directory : setup_.shared.value().directory));
  if (tiers_.size() > kMostFiles) throw std::logic_error("more file tiers than a store can have");
  return setup_.pool && setup_.shared && !setup_.veloc ? make_parent(*seams_.files, setup_.shared->directory)
                                                       : Result<void>();
}

Result<void> FileTiers::open(const std::function<FileTier::Reports(std::size_t)>& reports) {
  for (const auto& tier : tiers_) {
    if (!tier->is_open())
      if (auto opened = open(*tier, reports(tier->number())); !opened) return opened;
    persistent_ = tier->persistent() != nullptr;
    if (persistent_) next_sequence_ = std::max(next_sequence_, tier->persistent()->next_sequence());
    setup_.settings += ", " + tier->storage().describe();
  }
  return pair(storage::check_pair);
}

Result<void> FileTiers::open(FileTier& tier, const FileTier::Reports& reports) {
  if (setup_.durability == Durability::ephemeral && !setup_.readonly)
    return tier.open_scratch(*seams_.files, setup_, reports);
  if (auto opened = tier.open_segments(seams_, setup_, reports); !opened) return opened;
  if (setup_.readonly)
    setup_.durability = tier.storage().level();
  else if (tiers_.size() == 1)
    return storage::refuse_half_a_pair(*seams_.files, tier.directory());
  return {};
}

Result<void> FileTiers::pair(decltype(storage::check_pair)& how_far) {
  if (tiers_.size() < 2) return {};
  const auto seen = [](const FileTier& tier) {
    return storage::PairedDirectory{tier.directory(), tier.persistent()->found().empty()};
  };
  using How = storage::Pairing;
  const How how = setup_.readonly ? How::readonly : setup_.pool ? How::of_several : How::of_two;
  return how_far(*seams_.files, seen(*tiers_[0]), seen(*tiers_[1]), how);
}

void FileTiers::unmake(const Locked& /*locked*/) {
  for (const auto& tier : tiers_)
    if (tier->persistent() != nullptr) tier->persistent()->unmake();
}

void FileTiers::warn_of_damage() const {
  for (const auto& tier : tiers_) tier->warn_of_damage(setup_.log);
}

bool FileTiers::stop(planner::Time until, planner::Time below) {
  return std::ranges::all_of(tiers_, [&](const auto& tier) {
    return tier->stop(tier->number() > 0 ? below : until, port_, lifetime_, setup_.log);
  });
}

void FileTiers::close() {
  for (const auto& tier : tiers_) tier->close();
}

std::shared_ptr<const storage::Description> FileTiers::describe(const Locked& locked, const Catalog& catalog,
                                                                const Record& record) {
  if (!persistent_ || !record.info) return nullptr;
  return std::make_shared<const storage::Description>(storage::Description{
      catalog.name_of(locked, record.history), record.version, *record.info, take_sequence(locked)});
}

Result<void> FileTiers::check_names(Locked& locked, std::size_t file) {
  const InFlight looking(locked, lifetime_);
  return tiers_[file]->persistent()->check_files_exist();
}

}  // namespace ebb::store
