/* crc32c.h - CRC-32C (Castagnoli), so that a torn or flipped frame is noticed. */
#ifndef TSR_COMM_CRC32C_H
#define TSR_COMM_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Start with 0; the result of one call continues in the next. */
static inline uint32_t crc32c_portable(uint32_t crc, const void *data, size_t n)
{
    static const uint32_t half[16] = {
        /* one nibble at a time, reflected 0x82f63b78 */
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *p = data;
    crc = ~crc;
    for (; n; n--, p++) {
        crc ^= *p;
        crc = crc >> 4 ^ half[crc & 15];
        crc = crc >> 4 ^ half[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static inline uint32_t crc32c_sse42(uint32_t    crc,
                                                                      const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t             c = (uint32_t)~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        c = __builtin_ia32_crc32di(c, w);
    }
    uint32_t r = (uint32_t)c;
    for (; n; n--, p++)
        r = __builtin_ia32_crc32qi(r, *p);
    return ~r;
}
#endif

/* Asked by hand: the compiler's own helper would bring a constructor into the plugin. */
static inline bool crc32c_fast_here(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
#else
    return false;
#endif
}

static inline uint32_t crc32c(bool fast, uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (fast)
        return crc32c_sse42(crc, data, n);
#endif
    (void)fast;
    return crc32c_portable(crc, data, n);
}

#endif
