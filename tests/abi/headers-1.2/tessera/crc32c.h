/* tessera/crc32c.h - CRC-32C: the checksum (Castagnoli) that detects a damaged frame, inline.
 *
 * The header implements it, and transports and the core's journal call it.  It needs no host.
 * [any]
 *
 * Call tsr_crc32c_level() once and keep the result: the call may cost more than a short frame.
 *
 * Example: the checksum of a frame in two parts, a header and a payload.
 *
 *     static uint32_t frame_checksum(unsigned level, const void *header, size_t header_bytes,
 *                                    const void *payload, size_t payload_bytes)
 *     {
 *         uint32_t crc = tsr_crc32c_by(level, 0, header, header_bytes);
 *         return tsr_crc32c_by(level, crc, payload, payload_bytes);
 *     }
 */
#ifndef TSR_CRC32C_H
#define TSR_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && !defined(__CUDACC__)
#include <cpuid.h>
#include <wmmintrin.h>
#endif

/* The checksum of n bytes at data.  crc is 0 at first, and then the result of the previous part. */
static inline uint32_t tsr_crc32c_portable(uint32_t crc, const void *data, size_t n)
{
    static const uint32_t half[16] = {
        /* one nibble at a time, reflected 0x82f63b78 */
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *p = (const unsigned char *)data;
    crc = ~crc;
    for (; n; n--, p++) {
        crc ^= *p;
        crc = crc >> 4 ^ half[crc & 15];
        crc = crc >> 4 ^ half[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__) && !defined(__CUDACC__)
__attribute__((target("sse4.2"))) static inline uint32_t tsr_crc32c_sse42(uint32_t    crc,
                                                                          const void *data,
                                                                          size_t      n)
{
    const unsigned char *p = (const unsigned char *)data;
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

/* Bytes of a run.  Three runs are computed at once, because an instruction takes three cycles and a
 * new one can start in each cycle. */
enum { TSR_CRC32C_RUN = 1024 };

/* Moves the CRC of a run to the end of all three runs.  power is x^n mod P.  n is the number of
 * bits after the run (16 or 8 times TSR_CRC32C_RUN), minus the 33 that the product and the last
 * instruction add. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t tsr_crc32c_behind(uint64_t crc,
                                                                                  uint32_t power)
{
    __m128i a = _mm_cvtsi32_si128((int)(uint32_t)crc), b = _mm_cvtsi32_si128((int)power);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(a, b, 0));
}

__attribute__((target("sse4.2,pclmul"))) static inline uint32_t tsr_crc32c_pclmul(uint32_t    crc,
                                                                                  const void *data,
                                                                                  size_t      n)
{
    const size_t         run = TSR_CRC32C_RUN;
    const unsigned char *p = (const unsigned char *)data;
    for (; n >= 3 * run; n -= 3 * run, p += 3 * run) {
        uint64_t a = (uint32_t)~crc, b = 0, c = 0, w[3];
        for (size_t i = 0; i < run; i += 8) {
            memcpy(&w[0], p + i, 8);
            memcpy(&w[1], p + run + i, 8);
            memcpy(&w[2], p + 2 * run + i, 8);
            a = __builtin_ia32_crc32di(a, w[0]);
            b = __builtin_ia32_crc32di(b, w[1]);
            if (i + 8 == run)
                w[2] ^= tsr_crc32c_behind(a, 0xa51b6135u) ^ tsr_crc32c_behind(b, 0x170076fau);
            c = __builtin_ia32_crc32di(c, w[2]);
        }
        crc = ~(uint32_t)c;
    }
    return tsr_crc32c_sse42(crc, p, n);
}
#endif

enum { TSR_CRC32C_PORTABLE = 0, TSR_CRC32C_SSE42 = 1, TSR_CRC32C_PCLMUL = 2 };

/* The fastest level of this machine.  It reads cpuid, because the compiler's helper would add a
 * constructor to the plugin. */
static inline unsigned tsr_crc32c_level(void)
{
#if defined(__x86_64__) && !defined(__CUDACC__)
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2))
        return c & bit_PCLMUL ? TSR_CRC32C_PCLMUL : TSR_CRC32C_SSE42;
#endif
    return TSR_CRC32C_PORTABLE;
}

/* The checksum, with a level up to that of this machine. */
static inline uint32_t tsr_crc32c_by(unsigned level, uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__) && !defined(__CUDACC__)
    if (level == TSR_CRC32C_PCLMUL)
        return tsr_crc32c_pclmul(crc, data, n);
    if (level == TSR_CRC32C_SSE42)
        return tsr_crc32c_sse42(crc, data, n);
#endif
    (void)level;
    return tsr_crc32c_portable(crc, data, n);
}

#endif
