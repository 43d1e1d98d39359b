#include "share/messages.hpp"

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "share/pool/job.hpp"
#include "storage/format/bytes.hpp"

namespace ebb::share::message {
namespace {

constexpr std::size_t kMostText = 2048;  // of an error

struct Writer {
  std::vector<std::byte>& out;
  template <class T>
    requires std::is_integral_v<T>
  void operator()(T& value) {
    const auto at = out.size();
    out.resize(at + sizeof(T));
    storage::BytesWriter(out.data() + at).number(value);
  }
  void operator()(bool& value) {
    auto byte = static_cast<std::uint8_t>(value);
    (*this)(byte);
  }
  void operator()(std::string& text) {
    auto size = static_cast<std::uint32_t>(text.size());
    (*this)(size);
    out.resize(out.size() + size);
    storage::BytesWriter(out.data() + out.size() - size).text(text);
  }
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

// The fields of each message and of what is in it, in the order of its bytes.
auto fields(Member& m) { return std::tie(m.slot, m.generation); }
auto fields(os::ProcessId& id) { return std::tie(id.pid, id.start); }
auto fields(PoolShape& s) { return std::tie(s.budget, s.chunk_bytes, s.slab_chunks, s.processes, s.list_entries); }
auto fields(PoolStore& s) {
  return std::tie(s.directory, s.capacity, s.block_bytes, s.synced, s.direct, s.engine, s.overflow);
}
auto fields(PoolHeader& h) { return std::tie(h.shape, h.job, h.store); }
auto fields(Hello& m) { return std::tie(m.version, m.wanted, m.process, m.rank, m.ranks, m.member); }
auto fields(Claim& m) { return std::tie(m.slabs); }
auto fields(Look&) { return std::tie(); }
auto fields(Drop& m) { return std::tie(m.number, m.object, m.sequence, m.abandon, m.history, m.version); }
auto fields(Commit&) { return std::tie(); }
auto fields(Leave&) { return std::tie(); }
auto fields(Welcome& m) { return std::tie(m.member, m.first_slab, m.slabs, m.agent, m.program); }
auto fields(Refused& m) { return std::tie(m.error); }
auto fields(Claimed& m) { return std::tie(m.slabs, m.error); }
auto fields(Finished& m) { return std::tie(m.object, m.sequence, m.error); }
auto fields(Written& m) { return std::tie(m.object, m.sequence); }
auto fields(Dropped& m) { return std::tie(m.number); }
auto fields(Stage& m) { return std::tie(m.bytes); }
auto fields(Staged& m) { return std::tie(m.object, m.offset, m.at, m.bytes, m.description); }
auto fields(Moved& m) { return std::tie(m.object, m.offset, m.error); }
auto fields(Delayed& m) { return std::tie(m.object, m.error); }
auto fields(Lifeline& m) { return std::tie(m.version, m.process); }
auto fields(Borrow& m) { return std::tie(m.bytes, m.piece); }
auto fields(Granted& m) { return std::tie(m.lease, m.bytes, m.number); }
auto fields(Share& m) { return std::tie(m.link); }
auto fields(Recall& m) { return std::tie(m.lease); }
auto fields(Return& m) { return std::tie(m.lease, m.unusable, m.granted); }

// Writes or reads a value with all that is in it: one function for both, so that they cannot differ.
template <class F, class T>
void pass(F& f, T& value) {
  if constexpr (std::is_same_v<T, Error>) {
    auto code = static_cast<std::uint32_t>(value.code);
    f(code);
    value.code = static_cast<Errc>(code);
    if (value.message.size() > kMostText) value.message.resize(kMostText);
    f(value.message);
  } else if constexpr (std::is_invocable_v<F&, T&>) {
    f(value);
  } else {
    std::apply([&](auto&... field) { (pass(f, field), ...); }, fields(value));
  }
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
  std::vector<std::byte> out;
  Writer write{out};
  auto kind = static_cast<std::uint8_t>(message.index());
  write(kind);
  Any copy = message;
  std::visit([&](auto& one) { pass(write, one); }, copy);
  return out;
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
  std::visit([&](auto& one) { pass(read, one); }, message);
  if (!in.ok() || !in.rest().empty()) return damaged("of kind " + std::to_string(kind) + " has a wrong length");
  return message;
}

}  // namespace ebb::share::message
