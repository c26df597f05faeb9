#include "core/segment.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "core/fault_point.h"
#include "core/mapping_guard.h"
#include "core/segment_name.h"

namespace gristmill {
namespace {

namespace ipc = boost::interprocess;
using Reason = SegmentError::Reason;

constexpr std::uint64_t kMagic = 0x6C6C696D74736972ull;
constexpr std::uint32_t kAbiVersion = 2;
constexpr std::uint32_t kReady = 0x59444552u;
// Reserved at once, so that a signal that interrupts the reservation costs only one piece.
constexpr std::size_t kReservePiece = std::size_t{64} << 20;

// Written by the creator only, before READY; never after it.
struct SegmentHeader {
  std::uint32_t state;  // kReady or 0; through std::atomic_ref
  std::uint32_t abi;
  std::uint64_t magic;
  std::uint32_t kind;
  std::uint32_t header_bytes;
  std::uint64_t layout_hash;
  std::uint64_t payload_bytes;
  std::uint64_t total_bytes;
  std::uint64_t epoch;  // differs each time a name is created
  std::uint64_t owner;  // ProcessIdentity::pack()
  std::uint64_t name_space;
  std::uint64_t checksum;  // of the fields from `abi` to `name_space`
};
static_assert(sizeof(SegmentHeader) == 80 && sizeof(SegmentHeader) <= Segment::kHeaderBytes);

std::uint64_t checksum_of(const SegmentHeader& header) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&header);
  constexpr std::size_t from = offsetof(SegmentHeader, abi);
  return hash_bytes(bytes + from, offsetof(SegmentHeader, checksum) - from);
}

std::string about(const std::string& name) { return "shared-memory segment '" + name + "' "; }

[[noreturn]] void throw_system(const std::string& name, const std::string& call, int error) {
  throw SegmentError(Reason::kSystem, about(name) + "failed: " + call + ": " + std::strerror(error));
}

[[noreturn]] void throw_no_space(const std::string& name, std::size_t needed, std::size_t available) {
  throw SegmentError(
      Reason::kNoSpace,
      about(name) + "needs " + std::to_string(needed) + " bytes in /dev/shm, which has " +
          std::to_string(available) +
          " available: ask for less (a smaller queue capacity), free some (ls -l /dev/shm), or "
          "make it larger (docker run --shm-size=…, mount -o remount,size=… /dev/shm)");
}

int last_error(const ipc::interprocess_exception& error) {
  return error.get_native_error() != 0 ? error.get_native_error() : EINVAL;
}

// All pages now: a full /dev/shm is an error here, never a SIGBUS at the first touch.
void reserve(const std::string& name, int fd, std::size_t total) {
  for (std::size_t done = 0; done < total;) {
    const std::size_t piece = std::min(kReservePiece, total - done);
    const int error = ::posix_fallocate(fd, static_cast<off_t>(done), static_cast<off_t>(piece));
    if (error == EINTR) continue;
    if (error == ENOSPC) throw_no_space(name, total, done + shared_memory_available());
    if (error != 0) throw_system(name, "posix_fallocate", error);
    done += piece;
    GRISTMILL_FAULT_POINT("segment.reserve_piece");
  }
}

// Opens `name`; an fd of -1 and errno when there is none.
struct Opened {
  ipc::shared_memory_object object;
  int error = 0;
};

Opened open_existing(const std::string& name, ipc::mode_t mode) {
  // Looked at first: opening a pipe would wait for its other end.
  struct stat status {};
  if (::lstat((std::string("/dev/shm") + name).c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw SegmentError(Reason::kNotPermitted,
                       about(name) + (S_ISLNK(status.st_mode) ? "is a symbolic link" : "is no regular file") +
                           ": expected shared memory that its owner has created");
  }
  try {
    return {ipc::shared_memory_object(ipc::open_only, name.c_str(), mode), 0};
  } catch (const ipc::interprocess_exception& error) {
    return {{}, last_error(error)};
  }
}

void check_safe(const std::string& name, const struct stat& status) {
  if (status.st_uid != ::geteuid()) {
    throw SegmentError(Reason::kNotPermitted, about(name) + "belongs to user " +
                                                  std::to_string(status.st_uid) + ": expected user " +
                                                  std::to_string(::geteuid()) + ", who attaches");
  }
  if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
    char mode[16];
    std::snprintf(mode, sizeof mode, "%o", static_cast<unsigned>(status.st_mode & 07777));
    throw SegmentError(Reason::kNotPermitted,
                       about(name) + "has the unsafe mode " + mode + ": expected 600 (its owner only)");
  }
}

// By pread, not through a mapping: a file that shrinks is then a short read, not a SIGBUS.
bool read_header(const std::string& name, int fd, SegmentHeader* header) {
  ssize_t got;
  do {
    got = ::pread(fd, header, sizeof *header, 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw_system(name, "pread", errno);
  return got == static_cast<ssize_t>(sizeof *header);
}

std::string expected(std::uint64_t found, std::uint64_t wanted) {
  return std::to_string(found) + ": expected " + std::to_string(wanted);
}

void check_header(const std::string& name, const SegmentName& parsed, const SegmentHeader& header,
                  std::uint64_t file_bytes, SegmentKind kind, std::uint64_t layout_hash) {
  if (header.abi != kAbiVersion) {
    throw SegmentError(Reason::kIncompatible, about(name) + "has ABI version " +
                                                  expected(header.abi, kAbiVersion) +
                                                  "; use one gristmill build for all processes of a run");
  }
  if (header.checksum != checksum_of(header)) {
    throw SegmentError(Reason::kCorrupt, about(name) + "is corrupt: its header's checksum does not fit");
  }
  if (header.kind != static_cast<std::uint32_t>(kind)) {
    throw SegmentError(Reason::kWrongKind,
                       about(name) + "is of kind " + expected(header.kind, static_cast<std::uint32_t>(kind)));
  }
  if (header.layout_hash != layout_hash) {
    throw SegmentError(Reason::kIncompatible, about(name) + "has layout " +
                                                  expected(header.layout_hash, layout_hash) +
                                                  "; use one gristmill build for all processes of a run");
  }
  if (header.name_space != parsed.name_space || header.owner != parsed.owner.pack()) {
    throw SegmentError(Reason::kCorrupt, about(name) + "is corrupt: its header names another owner");
  }
  if (header.header_bytes != Segment::kHeaderBytes || header.total_bytes < Segment::kHeaderBytes ||
      header.payload_bytes != header.total_bytes - Segment::kHeaderBytes) {
    throw SegmentError(Reason::kCorrupt, about(name) + "is corrupt: its sizes contradict each other");
  }
  if (header.total_bytes != file_bytes) {
    throw SegmentError(Reason::kCorrupt, about(name) + "is corrupt: it has " +
                                             expected(file_bytes, header.total_bytes) + " bytes");
  }
}

}  // namespace

struct Segment::Mapping {
  ipc::shared_memory_object object;
  ipc::mapped_region region;
  std::atomic<bool> lost{false};
  MappingGuard guard;  // goes before the region

  std::byte* base() const { return static_cast<std::byte*>(region.get_address()); }
  int fd() const { return object.get_mapping_handle().handle; }
  std::atomic_ref<std::uint32_t> state() const {
    return std::atomic_ref<std::uint32_t>(reinterpret_cast<SegmentHeader*>(base())->state);
  }
  void map(const std::string& name, std::size_t bytes, ipc::mode_t mode) {
    try {
      ipc::mapped_region(object, mode, 0, bytes).swap(region);
    } catch (const ipc::interprocess_exception& error) {
      throw_system(name, "mmap of " + std::to_string(bytes) + " bytes", last_error(error));
    }
    // Up to the end of its last page.
    constexpr std::size_t kPage = Segment::kHeaderBytes;
    guard = MappingGuard(region.get_address(), (bytes + kPage - 1) / kPage * kPage, &lost);
  }
};

Segment::Segment() = default;

Segment Segment::create(const std::string& name, SegmentKind kind, std::uint64_t layout_hash,
                        std::size_t payload_bytes) {
  const SegmentName parsed = SegmentName::parse_or_throw(name);
  const ProcessIdentity self = ProcessIdentity::self();
  if (parsed.owner != self || !parsed.judgeable()) {
    throw std::invalid_argument("the segment name '" + name + "' names another process as its owner: " +
                                "expected segment_name() of the creating process");
  }
  if (payload_bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()) - kHeaderBytes) {
    throw_no_space(name, payload_bytes, shared_memory_available());
  }
  const std::size_t total = kHeaderBytes + payload_bytes;
  // The kernel answers a file over this limit with a signal that kills the process.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && total > limit.rlim_cur) {
    throw SegmentError(Reason::kNoSpace, about(name) + "needs " + std::to_string(total) +
                                             " bytes, but this process may write files of at most " +
                                             std::to_string(limit.rlim_cur) + " bytes: raise `ulimit -f`");
  }
  const std::size_t available = shared_memory_available();
  if (total > available) throw_no_space(name, total, available);

  Segment segment;
  segment.mapping_ = std::make_unique<Mapping>();
  try {
    ipc::permissions owner_only(0600);
    ipc::shared_memory_object(ipc::create_only, name.c_str(), ipc::read_write, owner_only)
        .swap(segment.mapping_->object);
  } catch (const ipc::interprocess_exception& error) {
    if (last_error(error) == EEXIST) {
      throw SegmentError(Reason::kExists, about(name) + "exists already: expected a new run or part name");
    }
    throw_system(name, "shm_open", last_error(error));
  }
  // From here on the destructor unlinks, also when what follows throws.
  segment.name_ = name;
  segment.unlinks_in_ = ::getpid();
  segment.owner_ = self;
  segment.fd_ = segment.mapping_->fd();
  GRISTMILL_FAULT_POINT("segment.opened");
  reserve(name, segment.fd_, total);
  GRISTMILL_FAULT_POINT("segment.reserved");
  segment.mapping_->map(name, total, ipc::read_write);
  GRISTMILL_FAULT_POINT("segment.mapped");
  segment.payload_ = segment.mapping_->base() + kHeaderBytes;
  segment.payload_bytes_ = payload_bytes;

  auto* header = new (segment.mapping_->base()) SegmentHeader{};
  header->abi = kAbiVersion;
  header->magic = kMagic;
  header->kind = static_cast<std::uint32_t>(kind);
  header->header_bytes = kHeaderBytes;
  header->layout_hash = layout_hash;
  header->payload_bytes = payload_bytes;
  header->total_bytes = total;
  header->epoch = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  header->owner = self.pack();
  header->name_space = parsed.name_space;
  header->checksum = checksum_of(*header);
  GRISTMILL_FAULT_POINT("segment.header");
  return segment;
}

Segment Segment::attach(const std::string& name, SegmentKind kind, std::uint64_t layout_hash,
                        Deadline deadline, Access access) {
  const ipc::mode_t mode = access == Access::kReadOnly ? ipc::read_only : ipc::read_write;
  const SegmentName parsed = SegmentName::parse_or_throw(name);
  if (!parsed.judgeable()) {
    throw SegmentError(Reason::kNotPermitted,
                       about(name) + "was created in another pid (or time) namespace: whether its " +
                           "processes live cannot be proved from here; start all processes of a run in one " +
                           "container, or share its pid namespace (docker run --pid=container:…)");
  }
  Segment segment;
  segment.mapping_ = std::make_unique<Mapping>();
  for (auto pause = std::chrono::microseconds(200);; pause = std::min(pause * 2, decltype(pause)(10'000))) {
    // Judged before the look: an owner that made it READY and then died is then still seen READY.
    const bool dead = parsed.owner.proved_dead();
    const bool last = deadline.passed();
    Opened opened = open_existing(name, mode);
    if (opened.error == EACCES || opened.error == EPERM) {
      throw SegmentError(Reason::kNotPermitted, about(name) + "may not be opened: it is another user's");
    }
    if (opened.error == ENOENT && (dead || last)) {
      throw SegmentError(Reason::kNotFound, about(name) + "does not exist" +
                                                (dead ? ", and its owner, process " +
                                                            std::to_string(parsed.owner.pid) + ", is dead"
                                                      : ": expected its owner to have created it"));
    }
    if (opened.error != 0 && opened.error != ENOENT) throw_system(name, "shm_open", opened.error);
    if (opened.error == 0) {
      const int fd = opened.object.get_mapping_handle().handle;
      struct stat status {};
      if (::fstat(fd, &status) != 0) throw_system(name, "fstat", errno);
      check_safe(name, status);
      SegmentHeader header{};
      const bool complete = read_header(name, fd, &header);
      if ((!complete && status.st_size != 0) || (header.state != 0 && header.state != kReady) ||
          (header.magic != 0 && header.magic != kMagic) ||
          (header.state == kReady && header.magic != kMagic)) {
        throw SegmentError(Reason::kCorrupt, about(name) + "is corrupt: it does not begin as a segment does");
      }
      if (header.state == kReady) {
        check_header(name, parsed, header, static_cast<std::uint64_t>(status.st_size), kind, layout_hash);
        segment.mapping_->object.swap(opened.object);
        segment.mapping_->map(name, header.total_bytes, mode);
        // SYNC POINT: pairs with mark_ready's release; the payload is visible from here on.
        if (segment.mapping_->state().load(std::memory_order_acquire) != kReady) {
          throw SegmentError(Reason::kCorrupt, about(name) + "is corrupt: it is not READY any more");
        }
        segment.name_ = name;
        segment.fd_ = segment.mapping_->fd();
        segment.payload_ = segment.mapping_->base() + kHeaderBytes;
        segment.payload_bytes_ = header.payload_bytes;
        segment.owner_ = parsed.owner;
        return segment;
      }
      if (dead) {
        throw SegmentError(Reason::kNotReady, about(name) + "was never finished: its creator, process " +
                                                  std::to_string(parsed.owner.pid) + ", died at it");
      }
      if (last) {
        throw SegmentError(Reason::kNotReady, about(name) + "is not ready: its creator, process " +
                                                  std::to_string(parsed.owner.pid) + ", is still at it");
      }
    }
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(pause, deadline.left()));
  }
}

std::atomic<bool>* Segment::lost_flag() const { return &mapping_->lost; }

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this != &other) {
    reset();
    name_ = std::move(other.name_);
    mapping_ = std::move(other.mapping_);
    fd_ = std::exchange(other.fd_, -1);
    payload_ = std::exchange(other.payload_, nullptr);
    payload_bytes_ = std::exchange(other.payload_bytes_, 0);
    owner_ = std::exchange(other.owner_, ProcessIdentity{});
    unlinks_in_ = std::exchange(other.unlinks_in_, 0);
  }
  return *this;
}

Segment::~Segment() { reset(); }

void Segment::mark_ready() {
  GRISTMILL_FAULT_POINT("segment.before_ready");
  // SYNC POINT: pairs with attach's acquire.
  mapping_->state().store(kReady, std::memory_order_release);
}

void Segment::unlink() noexcept {
  if (!name_.empty()) ipc::shared_memory_object::remove(name_.c_str());
  unlinks_in_ = 0;  // the name may be another segment's by the time this one is destroyed
}

void Segment::reset() noexcept {
  if (unlinks_in_ != 0 && unlinks_in_ == ::getpid()) unlink();
  unlinks_in_ = 0;
  mapping_.reset();
  fd_ = -1;
  payload_ = nullptr;
  payload_bytes_ = 0;
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t hash = seed;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 1099511628211ull;
  return hash;
}

}  // namespace gristmill
