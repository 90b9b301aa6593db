/* crc32c.h - CRC-32C (Castagnoli), so that a torn or flipped frame is noticed. */
#ifndef TSR_COMM_CRC32C_H
#define TSR_COMM_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <wmmintrin.h>
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

/* Three runs of this many bytes at once: one instruction takes three cycles and another may start in
 * each. */
#define CRC32C_RUN ((size_t)1024)

/* With x^n mod P of as many bits as lie behind a run (16 and 8 times CRC32C_RUN) less the 33 that
 * the product and the last instruction add: a run's CRC as it is at the end of all three. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t crc32c_behind(uint64_t crc,
                                                                              uint32_t power)
{
    __m128i a = _mm_cvtsi32_si128((int)(uint32_t)crc), b = _mm_cvtsi32_si128((int)power);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(a, b, 0));
}

__attribute__((target("sse4.2,pclmul"))) static inline uint32_t crc32c_pclmul(uint32_t    crc,
                                                                              const void *data,
                                                                              size_t      n)
{
    const unsigned char *p = data;
    for (; n >= 3 * CRC32C_RUN; n -= 3 * CRC32C_RUN, p += 3 * CRC32C_RUN) {
        uint64_t a = (uint32_t)~crc, b = 0, c = 0, w[3];
        for (size_t i = 0; i < CRC32C_RUN; i += 8) {
            memcpy(&w[0], p + i, 8);
            memcpy(&w[1], p + CRC32C_RUN + i, 8);
            memcpy(&w[2], p + 2 * CRC32C_RUN + i, 8);
            a = __builtin_ia32_crc32di(a, w[0]);
            b = __builtin_ia32_crc32di(b, w[1]);
            if (i + 8 == CRC32C_RUN)
                w[2] ^= crc32c_behind(a, 0xa51b6135u) ^ crc32c_behind(b, 0x170076fau);
            c = __builtin_ia32_crc32di(c, w[2]);
        }
        crc = ~(uint32_t)c;
    }
    return crc32c_sse42(crc, p, n);
}
#endif

enum { CRC32C_PORTABLE = 0, CRC32C_SSE42 = 1, CRC32C_PCLMUL = 2 };

/* Asked by hand: the compiler's own helper would bring a constructor into the plugin. */
static inline unsigned crc32c_level_here(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2))
        return c & bit_PCLMUL ? CRC32C_PCLMUL : CRC32C_SSE42;
#endif
    return CRC32C_PORTABLE;
}

/* level: at most that of this machine. */
static inline uint32_t crc32c(unsigned level, uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (level == CRC32C_PCLMUL)
        return crc32c_pclmul(crc, data, n);
    if (level == CRC32C_SSE42)
        return crc32c_sse42(crc, data, n);
#endif
    (void)level;
    return crc32c_portable(crc, data, n);
}

#endif
