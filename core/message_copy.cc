#include "core/message_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gristmill {

#if defined(__x86_64__)

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  // Whole lines, so that the processor need not read them first.
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to, from, bytes);
  // SYNC POINT: streaming stores pass later ones, those of a commit too, without it.
  _mm_sfence();
}

#else

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace gristmill
