#include "share/agent/pool_survey.hpp"

#include <algorithm>
#include <array>

#include "os/text_file.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::share {
namespace {

// A copy of a part of the file, aligned as the views of it need.
Result<std::vector<std::uint64_t>> copy_of(const os::SharedFile& file, os::FileRange range) {
  std::vector<std::uint64_t> words(range.bytes / 8);
  if (auto read = file.read(range.offset, std::as_writable_bytes(std::span(words))); !read) return read.error();
  return words;
}

std::byte* bytes_at(std::vector<std::uint64_t>& words) { return reinterpret_cast<std::byte*>(words.data()); }

Result<void> find_agent(const NodeSeams& seams, os::Files& files, Survey& survey) {
  const auto connection = seams.sockets->connect(socket_name(survey.header.job));
  if (!connection) return connection.error();
  if (!*connection) return {};
  survey.agent_pid = (*connection)->peer();
  const auto name = os::read_text(files, "/proc/" + std::to_string(survey.agent_pid) + "/comm");
  const bool program = name && (*name).starts_with("ebbtide-agent");
  survey.agent = program ? admin::Pool::Agent::program : admin::Pool::Agent::thread;
  return {};
}

}  // namespace

Result<PoolProgress> Survey::progress_now() const {
  auto head = copy_of(*file, header.shape.tables());
  if (!head) return head.error();
  return PoolTables(bytes_at(*head), header.shape).progress();
}

bool Survey::any_alive() const { return std::ranges::any_of(processes, &SurveyedProcess::alive); }

std::uint64_t bytes_of(const WholeObject& object) {
  std::uint64_t bytes = 0;
  for (const HandedOver& part : object.parts) bytes += part.part.bytes;
  return bytes;
}

Result<std::optional<Survey>> survey_pool(const NodeSeams& seams, os::Files& files, const std::string& name) {
  auto file = seams.memory->open(name);
  if (!file) return file.error();
  if (!*file) return std::optional<Survey>();
  const auto size = (*file)->size();
  if (!size) return size.error();
  std::vector<std::byte> block(std::min(*size, os::kBlock));
  if (auto read = (*file)->read(0, block); !read) return read.error();
  auto header = parse_pool_header(block);
  if (!header) return header.error();
  if (pool_name(header->job) != name) return Error{Errc::damaged, name + " is another job's pool"};
  Survey survey{*header, {}, 0, {}, {}, {}};
  const PoolShape& shape = survey.header.shape;
  auto head = copy_of(**file, shape.tables());
  if (!head) return head.error();
  const PoolTables tables(bytes_at(*head), shape);
  survey.progress = tables.progress();
  for (std::uint32_t slot = 0; slot < shape.processes; ++slot) {
    const auto process = tables.process(slot);
    if (!process) continue;
    auto words = copy_of(**file, shape.list(slot));
    if (!words) return words.error();
    SurveyedProcess found{*process, may_use(process->process, **file, files), false, 0, {}};
    found.elsewhere = found.alive && !os::is_running(files, process->process);
    found.waiting = whole_objects(HandoverList(bytes_at(*words), shape, tables, process->member).unfinished());
    for (std::uint32_t slab = 0; slab < shape.slabs(); ++slab) {
      const auto owned = tables.slab(slab);
      if (owned && owned->state != SlabState::free && owned->owner == process->member) ++found.slabs;
    }
    survey.processes.push_back(std::move(found));
  }
  survey.file = std::move(*file);
  if (auto found = find_agent(seams, files, survey); !found) return found.error();
  return std::optional<Survey>(std::move(survey));
}

}  // namespace ebb::share
