#include "batch/crc32c.h"

#include <string.h>

/* Half a byte at a time through a table that is worked out at compile time from the polynomial 0x82f63b78
 * (reflected). */
#define STEP(c)  ((c) >> 1 ^ ((c)&1 ? UINT32_C(0x82f63b78) : 0))
#define STEP4(c) STEP(STEP(STEP(STEP((uint32_t)(c)))))
#define ROW4(i)  STEP4(i), STEP4((i) + 1), STEP4((i) + 2), STEP4((i) + 3)

static const uint32_t nibbles[16] = { ROW4(0), ROW4(4), ROW4(8), ROW4(12) };

uint32_t tsr_crc32c_portable(uint32_t crc, const void *data, uint64_t bytes)
{
    const unsigned char *p = data;
    crc = ~crc;
    for (; bytes; bytes--, p++) {
        crc ^= *p;
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
/* By the instruction for it, eight bytes at a time. */
__attribute__((target("sse4.2"))) static uint32_t with_sse42(uint32_t crc, const void *data,
                                                             uint64_t bytes)
{
    const unsigned char *p = data;
    uint64_t             c = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        c = __builtin_ia32_crc32di(c, w);
    }
    for (; bytes; bytes--, p++)
        c = __builtin_ia32_crc32qi((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

uint32_t tsr_crc32c(uint32_t crc, const void *data, uint64_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return with_sse42(crc, data, bytes);
#endif
    return tsr_crc32c_portable(crc, data, bytes);
}
