#pragma once
// What the folders of a rank have: checkpoints, marks, and what an earlier process had begun.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "storage/veloc/veloc_folders.hpp"
#include "storage/veloc/veloc_objects.hpp"

namespace ebb::storage {

/// What a rank's own folder has.
struct VelocOwnFiles {
  std::map<std::string, std::vector<std::string>> marks;  // by `<name>-<version>`: files that may be its mark
  std::map<std::string, std::set<Version>> editions;      // of such marks, by the same with VELOC's number
  std::set<std::string> waiting;                          // `<name>-<version>` whose file waits for its name
  std::vector<std::string> pending, unfinished;
};
Result<VelocOwnFiles> list_own_files(const VelocFolders& folders);

/// Ends what an earlier process had begun (see VelocStorage), and lists what is left.
Result<VelocOwnFiles> settle_interrupted(const VelocFolders& folders, const VelocOwnFiles& own);

struct VelocLook {
  VelocFolders::Times before;   // of the folders, before they were listed
  std::vector<VelocSeen> seen;  // files that no object has
  std::set<std::string> there;  // files that are as their objects have them
  std::set<std::string> marks;  // `<name>-<version>` of all these files, whatever they are
  std::vector<Damage> damages;  // files that have a checkpoint's name, and are none
};
/// The files of the rank: in VELOC's directory, and those that wait for a name there.
Result<VelocLook> look(const VelocFolders& folders, const VelocObjects& objects, const VelocOwnFiles& own);

/// A mark without its file: somebody deleted that, so copies elsewhere go too.
struct VelocDeleted {
  Gone gone;
  std::filesystem::path mark;
};
/// `there`: as VelocLook::marks.
std::vector<VelocDeleted> find_deleted(const VelocFolders& folders, const VelocOwnFiles& own,
                                       const std::set<std::string>& there);

}  // namespace ebb::storage
