#include "planner/zones.hpp"

#include <array>
#include <stdexcept>
#include <string>

namespace ebb::policy {
namespace {

using Z = ZoneState;

constexpr ZoneTransition kZoneTable[] = {
    {Z::gone, Z::dirty, "protect", "no version has its bytes"},
    {Z::clean, Z::dirty, "write or touch", "it is the first since the last cut"},
    {Z::clean, Z::owed, "full cut", "no cut in flight has it or is owed it"},
    {Z::clean, Z::gone, "unprotect", "no cut is owed it"},
    {Z::dirty, Z::clean, "restore", "its bytes are those of a version again"},
    {Z::dirty, Z::owed, "cut", "it is armed before any fault is answered"},
    {Z::dirty, Z::gone, "unprotect", "no cut is owed it"},
    {Z::owed, Z::copying, "its turn", "the buffer has a place"},
    {Z::owed, Z::duplicating, "write", "the buffer has a place"},
    {Z::owed, Z::dirty, "failure", "every cut in flight fails"},
    {Z::copying, Z::done, "copy finished", "no write waits that the copy would free"},
    {Z::copying, Z::duplicating, "write", "a copied zone may be written"},
    {Z::copying, Z::dirty, "failure", "every cut in flight fails"},
    {Z::done, Z::clean, "next cut or write", "its cut is copied"},
    {Z::done, Z::dirty, "write", "a copied zone may be written before its cut is copied; or everything fails"},
    {Z::done, Z::gone, "unprotect", "no write waits for it"},
    {Z::duplicating, Z::duplicated, "copy finished", "the write goes on"},
    {Z::duplicating, Z::dirty, "failure", "every cut in flight fails"},
    {Z::duplicated, Z::dirty, "next cut or restore", "its bytes are no longer those of its cut"},
    {Z::duplicated, Z::gone, "unprotect", "no cut is owed it"},
};

constexpr int kZoneStates = 8;

constexpr auto make_zone_matrix() {
  std::array<std::array<bool, kZoneStates>, kZoneStates> matrix{};
  for (const ZoneTransition& t : kZoneTable) matrix[static_cast<int>(t.from)][static_cast<int>(t.to)] = true;
  return matrix;
}
constexpr auto kZoneAllowed = make_zone_matrix();

}  // namespace

const char* name_of(ZoneState state) {
  constexpr const char* kNames[kZoneStates] = {"gone",    "clean", "dirty",       "owed",
                                               "copying", "done",  "duplicating", "duplicated"};
  return kNames[static_cast<int>(state)];
}

std::span<const ZoneTransition> zone_transitions() { return kZoneTable; }

ZoneState transition(ZoneState from, ZoneState to) {
  if (!kZoneAllowed[static_cast<int>(from)][static_cast<int>(to)])
    throw std::logic_error(std::string("illegal transition of a zone: ") + name_of(from) + " to " + name_of(to));
  return to;
}

}  // namespace ebb::policy
