#include "tests/doubles/power_loss.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <unordered_map>

namespace ebb::doubles {
namespace {

using Kind = Change::Kind;
using Random = std::mt19937_64;

bool changes_names(Kind kind) {
  return kind == Kind::create || kind == Kind::make_directory || kind == Kind::rename || kind == Kind::remove;
}

// The last sync of each directory, and what became of each file's.
class Syncs {
 public:
  explicit Syncs(std::span<const Change> changes) : fates_(changes) {
    for (const Change& change : changes) {
      if (change.kind == Kind::sync_directory) last_[change.inode] = change.number;
    }
  }
  bool is_gone(const Change& change) const { return fates_.of(change) == SyncFate::gone; }
  bool covers(const Change& change) const {
    if (changes_bytes(change.kind)) return fates_.of(change) == SyncFate::safe;
    if (change.kind == Kind::rename && !after(change.to_directory, change.number)) return false;
    return after(change.directory, change.number);
  }

 private:
  bool after(Inode inode, std::uint64_t number) const {
    const auto found = last_.find(inode);
    return found != last_.end() && found->second > number;
  }
  const SyncFates fates_;
  std::unordered_map<Inode, std::uint64_t> last_;
};

// How much survives differs from state to state, so that nearly all and nearly nothing are among them.
struct Odds {
  double there, torn, name;
};

Odds draw_odds(Random& random) {
  static constexpr std::array<double, 4> kThere{0.1, 0.4, 0.7, 0.95};
  static constexpr std::array<double, 3> kTorn{0.0, 0.2, 0.6};
  static constexpr std::array<double, 3> kName{0.1, 0.5, 0.9};
  return {kThere[random() % kThere.size()], kTorn[random() % kTorn.size()], kName[random() % kName.size()]};
}

bool happens(Random& random, double odds) {
  return static_cast<double>(random() >> 11) < odds * static_cast<double>(std::uint64_t{1} << 53);
}

// Some of the sectors of a piece.
void put_torn(Contents& contents, const Piece& piece, Random& random) {
  const std::uint64_t lots = random();
  for (std::size_t from = piece.from; from < piece.to;) {
    const std::size_t sector = from / kSectorBytes;
    const std::size_t to = std::min<std::size_t>(piece.to, (sector + 1) * kSectorBytes);
    if (lots >> sector & 1) contents.put({piece.number, from, to, piece.page});
    from = to;
  }
}

// A whole page that no one wrote.
void put_garbage(Contents& contents, const Piece& piece, Random& random) {
  auto page = std::make_shared<Page>();
  std::ranges::generate(*page, [&] { return static_cast<std::byte>(random()); });
  contents.put({piece.number, 0, page->size(), std::move(page)});
}

void put_part(Contents& contents, const std::vector<Piece>& pieces, const Odds& odds, PowerLoss::Torn torn,
              Random& random) {
  if (!happens(random, odds.torn)) {
    if (!happens(random, odds.there)) return;
    for (const Piece& piece : pieces) contents.put(piece);
    return;
  }
  for (const Piece& piece : pieces) {
    const std::uint64_t lot = random() % 3;  // whole pages, lost ones, and torn ones
    if (lot == 0) contents.put(piece);
    if (lot != 1 && pieces.size() != 1) continue;
    if (torn == PowerLoss::Torn::sectors)
      put_torn(contents, piece, random);
    else
      put_garbage(contents, piece, random);
  }
}

// The length that a file comes back with: the one at its last sync, or one that it was given since.
struct Length {
  std::uint64_t choices = 0;  // changes of the length since
  std::uint64_t chosen = 0;   // the last of them that survives; 0: none
  std::uint64_t seen = 0;
  std::uint64_t bytes = 0;
  bool drawn = false;
};

std::uint64_t draw_choice(std::uint64_t choices, Random& random) {
  const std::uint64_t lot = random() % 4;
  return lot < 2 ? choices : lot == 2 ? 0 : random() % (choices + 1);
}

class Crash {
 public:
  Crash(FileTree tree, std::span<const Change> changes, std::uint64_t seed, PowerLoss::Torn torn)
      : tree_(std::move(tree)),
        changes_(changes),
        syncs_(changes),
        torn_(torn),
        random_(seed),
        odds_(draw_odds(random_)) {}

  FileTree run() && {
    for (const Change& change : changes_) {
      if (!changes_bytes(change.kind) || syncs_.covers(change) || syncs_.is_gone(change)) continue;
      Length& length = lengths_[change.inode];
      if (change.length_after != change.length_before) ++length.choices;
    }
    for (const Change& change : changes_) {
      if (changes_names(change.kind)) change_name(change);
      if (changes_bytes(change.kind)) change_bytes(change);
    }
    for (const auto& [inode, length] : lengths_) {
      if (length.drawn) tree_.find(inode)->contents.set_length(length.bytes);
    }
    tree_.sweep();
    return std::move(tree_);
  }

 private:
  void change_name(const Change& change) {
    if (change.kind == Kind::create || change.kind == Kind::make_directory) {  // it exists, with a name or not
      tree_.apply({.kind = change.kind, .inode = change.inode});
    }
    if (syncs_.covers(change) || happens(random_, odds_.name)) tree_.apply(change);
  }

  void change_bytes(const Change& change) {
    if (syncs_.is_gone(change)) return;
    if (syncs_.covers(change)) {
      tree_.apply(change);
      lengths_[change.inode].bytes = change.length_after;  // though a failed sync went before it
      return;
    }
    FileTree::Node* const node = tree_.find(change.inode);
    if (node == nullptr) return;  // its creation was left out
    Contents& contents = node->contents;
    Length& length = lengths_.at(change.inode);
    if (!length.drawn) {  // all synced parts of the file are applied by now
      length = {length.choices, draw_choice(length.choices, random_), 0, contents.length(), true};
    }
    const bool lengthens = change.length_after != change.length_before;
    if (lengthens) ++length.seen;
    const bool in_time = length.seen <= length.chosen;
    switch (change.kind) {
      case Kind::write: put_part(contents, *change.pieces, odds_, torn_, random_); break;
      case Kind::truncate:
        if (lengthens && in_time) contents.set_length(change.length_after);
        break;
      case Kind::preallocate:
        if (happens(random_, odds_.there)) contents.allocate(change.offset, change.bytes);
        break;
      case Kind::punch:
        if (happens(random_, odds_.there)) contents.zero(change.offset, change.bytes);
        break;
      default: break;
    }
    if (lengthens && in_time) length.bytes = change.length_after;
  }

  FileTree tree_;
  const std::span<const Change> changes_;
  const Syncs syncs_;
  const PowerLoss::Torn torn_;
  Random random_;
  const Odds odds_;
  std::map<Inode, Length> lengths_;
};

const char* name_of(Kind kind) {
  static constexpr std::array<const char*, 14> kNames{
      "(left out)", "note",        "create", "make_directory", "rename",         "remove",      "write",
      "truncate",   "preallocate", "punch",  "sync",           "sync_directory", "failed_sync", "drop_cached"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace

std::unique_ptr<MemoryFiles> PowerLoss::prefix(std::size_t n) const {
  FileTree tree = journal_.before;
  for (const Change& change : std::span(journal_.changes).first(n)) tree.apply(change);
  tree.sweep();
  return std::make_unique<MemoryFiles>(std::move(tree));
}

std::unique_ptr<MemoryFiles> PowerLoss::killed(std::size_t n) const {
  const auto end = journal_.changes.begin() + static_cast<std::ptrdiff_t>(n);
  return std::make_unique<MemoryFiles>(Journal{journal_.before, {journal_.changes.begin(), end}});
}

std::unique_ptr<MemoryFiles> PowerLoss::crash(std::size_t n, std::uint64_t seed, Torn torn) const {
  const std::uint64_t mixed = (seed + 1) * 0x9E3779B97F4A7C15 ^ n * 0xBF58476D1CE4E5B9;
  return std::make_unique<MemoryFiles>(Crash(journal_.before, std::span(journal_.changes).first(n), mixed, torn).run());
}

std::vector<std::string> PowerLoss::notes(std::size_t n) const {
  std::vector<std::string> texts;
  for (const Change& change : std::span(journal_.changes).first(n)) {
    if (change.kind == Kind::note) texts.push_back(change.text);
  }
  return texts;
}

std::vector<std::size_t> PowerLoss::all(Kind kind) const {
  std::vector<std::size_t> numbers;
  for (const Change& change : journal_.changes) {
    if (change.kind == kind) numbers.push_back(change.number);
  }
  return numbers;
}

std::vector<std::size_t> PowerLoss::syncs() const {
  std::vector<std::size_t> numbers = all(Kind::sync);
  std::ranges::copy(all(Kind::sync_directory), std::back_inserter(numbers));
  std::ranges::sort(numbers);
  return numbers;
}

PowerLoss PowerLoss::without(const std::vector<std::size_t>& numbers) const {
  Journal left = journal_;
  for (const std::size_t number : numbers) left.changes.at(number - 1).kind = Kind::nothing;
  return PowerLoss(std::move(left));
}

std::string describe(const Change& change) {
  std::string text = std::to_string(change.number);
  text.append(" ").append(name_of(change.kind)).append(" ").append(change.text);
  if (changes_bytes(change.kind)) {
    text.append(" ").append(std::to_string(change.offset)).append("+").append(std::to_string(change.bytes));
  }
  return text;
}

}  // namespace ebb::doubles
