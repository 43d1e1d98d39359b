#include <array>
#include <stdexcept>

#include "tests/fuzz/pool_image.hpp"
#include "tests/fuzz/targets.hpp"

namespace ebb::fuzz {
namespace {

void demand(bool holds) {
  if (!holds) throw std::logic_error("what was read from a pool cannot be");
}

// The checksums that a hostile writer would put in.
void make_right(PoolImage& image) {
  storage::seal_sector(image.header.data());
  for (std::size_t place = 0; place < image.entries.size(); ++place) {
    PoolImage::Words& entry = image.entries[place];
    if (entry[0] % 4 != 0) entry[0] = place + 1;
    if (entry[1] % 4 != 0) entry[1] = image.processes[0];
    const auto sum = storage::checksum_of(std::as_bytes(std::span(entry).first(PoolImage::kSummedWords)));
    std::memcpy(&entry[PoolImage::kSummedWords], sum.data(), sum.size());
  }
}

void check_list(PoolMemory& memory, share::Member of) {
  const share::PoolTables tables = memory.view();
  const auto inside = [&](const share::SlabBytes& bytes) {
    if (bytes.bytes == 0) return true;
    const auto slab = bytes.slab < memory.shape.slabs() ? tables.slab(bytes.slab) : std::nullopt;
    return slab && slab->owner == of && bytes.offset + bytes.bytes <= memory.shape.slab_bytes() &&
           bytes.offset <= memory.shape.slab_bytes();
  };
  share::HandoverList list = memory.list_of(of);
  const auto all = list.unfinished();
  const std::array<std::byte, os::kBlock> slab{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    demand(i == 0 || all[i - 1].sequence < all[i].sequence);
    demand(inside(all[i].part) && inside(all[i].description));
    static_cast<void>(share::read_description(all[i], slab));
  }
  for (const share::WholeObject& object : share::whole_objects(all)) {
    demand(object.last().description.bytes != 0);
    std::uint64_t end = 0;
    for (const share::HandedOver& part : object.parts) {
      demand(part.at == end && part.object == object.parts[0].object);
      end += part.part.bytes;
      list.finish(part.sequence);
      demand(list.is_finished(part.sequence));
    }
  }
}

void read_pool(const PoolImage& image) {
  const auto header = share::parse_pool_header(image.header);
  if (header) {
    demand(share::parse_pool_header(share::encode(*header)) == *header);
  } else {
    demand(header.error().code == Errc::damaged || header.error().code == Errc::unsupported ||
           header.error().code == Errc::lost);
  }
  const share::PoolShape shape = header ? (*header).shape : share::choose_shape(8 * 4096, 4096, 1).value();
  PoolMemory memory(shape, image);
  share::PoolTables tables = memory.view();
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(shape.slabs(), 2 * PoolImage::kSlabs); ++i) {
    const auto slab = tables.slab(i);
    demand(!slab || slab->state == share::SlabState::free || tables.process(slab->owner.slot).has_value());
  }
  if (const auto process = tables.process(0)) check_list(memory, process->member);
  if (const auto member = tables.next_member()) {
    tables.admit({*member, {1, 1}, 0});
    demand(tables.process((*member).slot).has_value() && tables.dismiss(*member));
  }
}

}  // namespace

void pool(const std::uint8_t* data, std::size_t size) {
  PoolImage image = PoolImage::read(std::as_bytes(std::span(data, size)));
  read_pool(image);
  make_right(image);
  read_pool(image);
}

}  // namespace ebb::fuzz
