#pragma once

// Memory for what comes out of queues, used again when its last user is gone: touching fresh pages costs
// several times what the copy into them does. Needs the GIL.

#include <cstddef>

namespace gristmill::python {

// What is kept for the next users, in all; what was not used for longest is freed first.
inline constexpr std::size_t kPooledBytes = std::size_t{64} << 20;

// Memory of `bytes` bytes at least, aligned to 64; *allocated is how much it is. nullptr when there is none.
std::byte* allocate_memory(std::size_t bytes, std::size_t* allocated);
void give_back_memory(std::byte* data, std::size_t allocated);

}  // namespace gristmill::python
