#pragma once

// A named POSIX shared-memory object with a checked header.
//
//   offset 0   header (one page): magic, ABI version, kind, layout hash, sizes, epoch, owner and its
//              namespace, checksum; READY is stored last (release), and read first (acquire)
//   offset 4K  payload: what the kind says
//
// Names: "/gristmill.<owner pid>-<owner start time>-<namespace>.<run>.<part>": a sweeper can judge a
// segment by its name alone, even one whose creator died before it had written anything. Those of
// another pid namespace (containers that share /dev/shm) cannot be judged, and are left alone.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/process_identity.h"

namespace gristmill {

// Values are stored in shared memory: append only.
enum class SegmentKind : std::uint32_t {
  kTrajectoryQueue = 1,
  kBox = 2,
  kRunBoard = 3,
  kMessageQueue = 4,
};

// Any refusal to create or attach. what() names the segment, the reason, and what was expected.
class SegmentError : public std::runtime_error {
 public:
  enum class Reason {
    kExists,        // create: the name is taken
    kNotFound,      // attach: no such name
    kNotReady,      // attach: its creator has not finished within the deadline, or died at it
    kNoSpace,       // create: /dev/shm cannot hold it; bytes needed and available are in what()
    kWrongKind,     // attach: a segment, but of another kind
    kIncompatible,  // attach: another ABI version or layout hash
    kCorrupt,       // attach: bad magic, checksum, sizes, or geometry
    kNotPermitted,  // another user's, an unsafe mode, or another pid namespace's
    kSystem,        // anything else; errno's text is in what()
  };
  SegmentError(Reason reason, const std::string& what) : std::runtime_error(what), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

// Movable, not copyable. Unmaps at destruction; the creating *process* (never a forked child of it)
// also unlinks the name then. A file that another process cuts short is no SIGBUS: see lost().
class Segment {
 public:
  static constexpr std::size_t kHeaderBytes = 4096;

  enum class Access { kReadWrite, kReadOnly };

  // Creates exclusively, mode 0600, zero-filled, all pages reserved (posix_fallocate). The payload
  // is not visible to attach() until mark_ready(). Throws SegmentError, and std::invalid_argument for
  // a name that is not segment_name()'s of the calling process.
  static Segment create(const std::string& name, SegmentKind kind, std::uint64_t layout_hash,
                        std::size_t payload_bytes);
  // Waits until the deadline for the name to exist and for READY, then checks every header field.
  // Gives up at once when the creator (as the name says) is proved dead before READY. Throws
  // SegmentError, and std::invalid_argument for a name that segment_name() cannot have made. kReadOnly
  // opens and maps it for reading: a store into it ends the process.
  static Segment attach(const std::string& name, SegmentKind kind, std::uint64_t layout_hash,
                        Deadline deadline, Access access = Access::kReadWrite);

  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  // The creator calls it once, when the payload is initialised.
  void mark_ready();
  // Removes the name now; mappings stay valid. Any process of the owner may call it; idempotent.
  void unlink() noexcept;

  std::byte* payload() const { return payload_; }
  std::size_t payload_bytes() const { return payload_bytes_; }
  const std::string& name() const { return name_; }
  // The creating process, as the header says (private copy).
  ProcessIdentity owner() const { return owner_; }
  // Open while the Segment lives, for mapping parts of it again (the double-mapped ring).
  int fd() const { return fd_; }
  // Whether another process has cut the file short, and this one touched what is gone (it is zeros now, this
  // process's alone: core/mapping_guard.h). One load.
  bool lost() const { return lost_flag()->load(std::memory_order_relaxed); }
  // For guarding other mappings of fd(). Lives as long as the mapping, wherever the Segment is moved.
  std::atomic<bool>* lost_flag() const;

 private:
  struct Mapping;

  Segment();
  void reset() noexcept;

  std::string name_;
  std::unique_ptr<Mapping> mapping_;
  int fd_ = -1;
  std::byte* payload_ = nullptr;
  std::size_t payload_bytes_ = 0;
  ProcessIdentity owner_;
  pid_t unlinks_in_ = 0;  // pid whose destruction unlinks; 0 for an attached segment
};

// "/gristmill.<pid>-<start>-<namespace>.<run>.<part>" for the calling process. Throws
// std::invalid_argument when run or part is empty or holds anything but A-Z a-z 0-9 . _ -, or when the
// name would exceed kMaxSegmentName bytes.
inline constexpr std::size_t kMaxSegmentName = 250;
std::string segment_name(const std::string& run, const std::string& part);

struct SegmentInfo {
  std::string name;
  ProcessIdentity owner;  // from the name
  std::size_t bytes = 0;
  bool judged = false;  // of this pid namespace, so that `dead` means something
  bool dead = false;    // the owner is proved dead
};
// Every gristmill segment of the calling user, in name order.
std::vector<SegmentInfo> list_segments();
// Unlinks those whose owner is proved dead; returns them. Called at every start of a run.
std::vector<SegmentInfo> sweep_segments();

// Bytes free in /dev/shm; the largest std::size_t when it has no limit. Throws SegmentError (kSystem).
std::size_t shared_memory_available();
// FNV-1a, for layout hashes and checksums.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 14695981039346656037ull);

}  // namespace gristmill
