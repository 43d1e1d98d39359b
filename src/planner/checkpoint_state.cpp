#include "planner/checkpoint_state.hpp"

namespace ebb::planner {
namespace {

using W = WriteState;
using N = NameState;
using F = FileState;

constexpr WriteTransition kWriteTable[] = {
    {W::unwritten, W::writing, "checkpoint or recovery", "the version does not exist"},
    {W::unwritten, W::reserved, "reserve", "the version does not exist"},
    {W::unwritten, W::lost, "failure", "its call was given up, and its copies have ended with an error"},
    {W::lost, W::writing, "checkpoint or recovery", "it still has the name: a hint waits for it"},
    {W::lost, W::reserved, "reserve", "it still has the name: a hint waits for it"},
    {W::lost, W::unwritten, "release", "nothing uses it"},
    {W::writing, W::stored, "last chunk finished", "all bytes are valid on one tier"},
    {W::writing, W::unwritten, "cancellation, drop or refusal", "its call ends without it"},
    {W::writing, W::lost, "failure", "no tier is left that could take it"},
    {W::reserved, W::stored, "commit", "the application has computed all bytes"},
    {W::reserved, W::submitted, "commit in stream order", "the stream has yet to compute them"},
    {W::reserved, W::unwritten, "abandon, drop or refusal", "it was not committed"},
    {W::submitted, W::stored, "commit", "the stream has computed all bytes"},
    {W::submitted, W::unwritten, "abandon", "the stream failed"},
    {W::stored, W::unwritten, "release", "it was dropped or consumed, and nothing uses it"},
    {W::stored, W::lost, "failure", "no tier can give it back"},
};

constexpr NameTransition kNameTable[] = {
    {N::free, N::named, "write, hint or recovery", "no checkpoint has the name"},
    {N::named, N::consumed, "restore or release", "it is stored, and no further hint names it"},
    {N::named, N::dropped, "drop or retention, or a write that was given up",
     "calls and copies that have begun go on to their end"},
    {N::named, N::restored, "restore or release", "(ephemeral stores) it is stored, and no further hint names it"},
    {N::named, N::free, "release", "it is not written, and no hint or call names it"},
    {N::consumed, N::named, "hint, or failure", "a hint names it again, or it can no longer be read"},
    {N::consumed, N::dropped, "drop or retention", "calls and copies that have begun go on to their end"},
    {N::dropped, N::free, "release", "it has no replica, and no call, copy or hint"},
    {N::restored, N::free, "release", "it has no replica, and no call, copy or hint"},
};

constexpr FileTransition kFileTable[] = {
    {F::pending, F::durable, "durable", "all of it is in the file"},
    {F::pending, F::failed, "not durable", "it could not be written or synced"},
    {F::pending, F::recovered, "recovery", "the file has a complete record of it"},
    {F::failed, F::durable, "durable", "a later try succeeded"},
    {F::failed, F::pending, "removal", "its copy has gone"},
    {F::durable, F::pending, "removal", "its copy has gone"},
    {F::recovered, F::intact, "last byte read", "its checksum matched, or it has no bytes"},
    {F::recovered, F::pending, "removal", "its copy has gone"},
    {F::intact, F::pending, "removal", "its copy has gone"},
};

constexpr StateTable<WriteState, 6> kWriteStates("what is written of a checkpoint",
                                                 {"unwritten", "lost", "writing", "reserved", "submitted", "stored"},
                                                 kWriteTable);
constexpr StateTable<NameState, 5> kNameStates("a checkpoint's name",
                                               {"named", "consumed", "dropped", "restored", "free"}, kNameTable);
constexpr StateTable<FileState, 5> kFileStates("a checkpoint in a file",
                                               {"pending", "failed", "durable", "recovered", "intact"}, kFileTable);

}  // namespace

const char* name_of(WriteState state) { return kWriteStates.name_of(state); }
const char* name_of(NameState state) { return kNameStates.name_of(state); }
const char* name_of(FileState state) { return kFileStates.name_of(state); }
std::span<const WriteTransition> write_transitions() { return kWriteTable; }
std::span<const NameTransition> name_transitions() { return kNameTable; }
std::span<const FileTransition> file_transitions() { return kFileTable; }
WriteState transition(WriteState from, WriteState to) { return kWriteStates.transition(from, to); }
NameState transition(NameState from, NameState to) { return kNameStates.transition(from, to); }
FileState transition(FileState from, FileState to) { return kFileStates.transition(from, to); }

}  // namespace ebb::planner
