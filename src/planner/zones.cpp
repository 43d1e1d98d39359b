#include "planner/zones.hpp"

namespace ebb::planner {
namespace {

using Z = ZoneState;

constexpr ZoneTransition kZoneTransitions[] = {
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

constexpr StateTable<ZoneState, 8> kZoneStates(
    "a zone", {"gone", "clean", "dirty", "owed", "copying", "done", "duplicating", "duplicated"}, kZoneTransitions);

}  // namespace

const char* name_of(ZoneState state) { return kZoneStates.name_of(state); }
std::span<const ZoneTransition> zone_transitions() { return kZoneTransitions; }
ZoneState transition(ZoneState from, ZoneState to) { return kZoneStates.transition(from, to); }

}  // namespace ebb::planner
