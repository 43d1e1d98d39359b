#pragma once
// The kernel's names for write protection by userfaultfd and for PAGEMAP_SCAN, those that older headers lack by their
// numbers; and how a userfaultfd is opened.
#include <cstdint>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"

namespace ebb::os::uffd {

inline constexpr std::uint64_t kFaultFlagWp = 1 << 0;     // UFFD_FEATURE_PAGEFAULT_FLAG_WP
inline constexpr std::uint64_t kEventRemap = 1 << 2;      // UFFD_FEATURE_EVENT_REMAP
inline constexpr std::uint64_t kEventRemove = 1 << 3;     // UFFD_FEATURE_EVENT_REMOVE
inline constexpr std::uint64_t kEventUnmap = 1 << 6;      // UFFD_FEATURE_EVENT_UNMAP
inline constexpr std::uint64_t kWpShmem = 1 << 12;        // UFFD_FEATURE_WP_HUGETLBFS_SHMEM, Linux 5.19
inline constexpr std::uint64_t kWpUnpopulated = 1 << 13;  // UFFD_FEATURE_WP_UNPOPULATED, Linux 6.4
inline constexpr std::uint64_t kWpAsync = 1 << 15;        // UFFD_FEATURE_WP_ASYNC, Linux 6.7
/// Without kWpUnpopulated the first write to a page that was never touched is missed.
inline constexpr std::uint64_t kNeeded =
    kFaultFlagWp | kEventRemap | kEventRemove | kEventUnmap | kWpShmem | kWpUnpopulated;

/// struct page_region, struct pm_scan_arg and PAGEMAP_SCAN, Linux 6.7.
struct PageRegion {
  std::uint64_t start, end, categories;
};
struct ScanArgument {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask,
      category_anyof_mask, return_mask;
};
inline constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);
inline constexpr std::uint64_t kPageIsWritten = 1 << 1;   // PAGE_IS_WRITTEN
inline constexpr std::uint64_t kScanWpMatching = 1 << 0;  // PM_SCAN_WP_MATCHING
inline constexpr std::uint64_t kScanCheckAsync = 1 << 1;  // PM_SCAN_CHECK_WPASYNC

struct Opened {
  OwnDescriptor descriptor{};
  bool user_faults_only = false;
};
/// A descriptor with these features. Errors: unsupported (this kernel lacks userfaultfd, or a feature), not_permitted.
Result<Opened> open(std::uint64_t features);

}  // namespace ebb::os::uffd
