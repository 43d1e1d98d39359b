#include "node/messages.hpp"

#include <algorithm>
#include <type_traits>

#include "node/job.hpp"
#include "storage/format/bytes.hpp"

namespace ebb::node::message {
namespace {

constexpr std::size_t kMostText = 2048;  // of an error

// Writes, or counts when there is nowhere to write to.
class Out {
 public:
  template <class T>
  void number(T value) {
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    storage::BytesWriter(bytes_.data() + at).number(value);
  }
  void text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    const auto at = bytes_.size();
    bytes_.resize(at + text.size());
    storage::BytesWriter(bytes_.data() + at).text(text);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Writing and reading are one function for each message, so that they cannot differ.
struct Writer {
  Out& out;
  template <class T>
    requires std::is_integral_v<T>
  void operator()(T& value) {
    out.number(value);
  }
  void operator()(bool& value) { out.number(static_cast<std::uint8_t>(value)); }
  void operator()(std::string& text) { out.text(text); }
};

struct Reader {
  storage::BytesReader& in;
  template <class T>
    requires std::is_integral_v<T>
  void operator()(T& value) {
    value = in.number<T>();
  }
  void operator()(bool& value) { value = in.number<std::uint8_t>() != 0; }
  void operator()(std::string& text) { text = in.text(in.number<std::uint32_t>()); }
};

template <class F>
void fields(F& f, Member& member) {
  f(member.slot);
  f(member.generation);
}
template <class F>
void fields(F& f, Error& error) {
  auto code = static_cast<std::uint32_t>(error.code);
  f(code);
  error.code = static_cast<Errc>(code);
  if (error.message.size() > kMostText) error.message.resize(kMostText);
  f(error.message);
}
template <class F>
void fields(F& f, PoolHeader& header) {
  f(header.shape.budget);
  f(header.shape.chunk_bytes);
  f(header.shape.slab_chunks);
  f(header.shape.processes);
  f(header.shape.list_entries);
  f(header.job);
  f(header.store.directory);
  f(header.store.capacity);
  f(header.store.block_bytes);
  f(header.store.synced);
  f(header.store.direct);
  f(header.store.engine);
}
template <class F>
void fields(F& f, Hello& m) {
  f(m.version);
  fields(f, m.wanted);
  f(m.process.pid);
  f(m.process.start);
  f(m.rank);
  f(m.ranks);
  fields(f, m.member);
}
template <class F>
void fields(F& f, Claim& m) {
  f(m.slabs);
}
template <class F>
void fields(F&, Look&) {}
template <class F>
void fields(F& f, Drop& m) {
  f(m.number);
  f(m.object);
  f(m.sequence);
  f(m.abandon);
  f(m.history);
  f(m.version);
}
template <class F>
void fields(F&, Commit&) {}
template <class F>
void fields(F&, Leave&) {}
template <class F>
void fields(F& f, Welcome& m) {
  fields(f, m.member);
  f(m.first_slab);
  f(m.slabs);
  f(m.agent);
  f(m.program);
}
template <class F>
void fields(F& f, Refused& m) {
  fields(f, m.error);
}
template <class F>
void fields(F& f, Claimed& m) {
  f(m.slabs);
  fields(f, m.error);
}
template <class F>
void fields(F& f, Finished& m) {
  f(m.object);
  f(m.sequence);
  fields(f, m.error);
}
template <class F>
void fields(F& f, Dropped& m) {
  f(m.number);
}

template <class F>
void fields(F& f, Stage& m) {
  f(m.bytes);
}
template <class F>
void fields(F& f, Piece& m) {
  f(m.object);
  f(m.offset);
  f(m.at);
  f(m.bytes);
  f(m.description);
}
template <class F>
void fields(F& f, Moved& m) {
  f(m.object);
  f(m.offset);
  fields(f, m.error);
}

template <class F>
void fields(F&, Borrow&) {}
template <class F>
void fields(F& f, Returned& m) {
  f(m.first);
}
template <class F>
void fields(F& f, Lent& m) {
  f(m.first);
}
template <class F>
void fields(F& f, Recall& m) {
  f(m.first);
}
template <class F>
void fields(F& f, Delayed& m) {
  f(m.object);
  fields(f, m.error);
}

template <class F>
void fields(F& f, Lifeline& m) {
  f(m.version);
  f(m.process.pid);
  f(m.process.start);
}
template <class F>
void fields(F& f, Request& m) {
  f(m.bytes);
  f(m.piece);
}
template <class F>
void fields(F& f, Granted& m) {
  f(m.lease);
  f(m.bytes);
}
template <class F>
void fields(F& f, Share& m) {
  f(m.link);
}
template <class F>
void fields(F& f, RecallLease& m) {
  f(m.lease);
}
template <class F>
void fields(F& f, ReturnLease& m) {
  f(m.lease);
  f(m.unusable);
}

template <std::size_t I = 0>
Any made(std::uint8_t kind) {
  if constexpr (I < std::variant_size_v<Any>) {
    if (kind == I) return Any(std::in_place_index<I>);
    return made<I + 1>(kind);
  }
  return Look{};
}

Error damaged(const std::string& what) { return {Errc::damaged, "a message of the node's pool " + what}; }

}  // namespace

std::vector<std::byte> encode(const Any& message) {
  Out out;
  out.number(static_cast<std::uint8_t>(message.index()));
  Writer write{out};
  Any copy = message;
  std::visit([&](auto& one) { fields(write, one); }, copy);
  return out.take();
}

Result<Any> parse(std::span<const std::byte> bytes) {
  storage::BytesReader in(bytes);
  const auto kind = in.number<std::uint8_t>();
  if (!in.ok() || kind >= std::variant_size_v<Any>) return damaged("has the unknown kind " + std::to_string(kind));
  Any message = made(kind);
  if (std::holds_alternative<Hello>(message)) {  // its version comes first, in every version
    storage::BytesReader first(in.rest());
    const auto version = first.number<std::uint32_t>();
    if (first.ok() && version != kPoolVersion) {
      return Error{Errc::unsupported, "the agent of this job's pool is of version " + std::to_string(kPoolVersion) +
                                          ", and this process is of version " + std::to_string(version)};
    }
  }
  Reader read{in};
  std::visit([&](auto& one) { fields(read, one); }, message);
  if (!in.ok() || !in.rest().empty()) return damaged("of kind " + std::to_string(kind) + " has a wrong length");
  return message;
}

}  // namespace ebb::node::message
