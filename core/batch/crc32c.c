#include "batch/crc32c.h"

/* One byte at a time through a table that is worked out at compile time from the polynomial
 * 0x82f63b78 (reflected): a journal takes a few megabytes a second at most. */
#define STEP(c)  ((c) >> 1 ^ ((c)&1 ? UINT32_C(0x82f63b78) : 0))
#define STEP4(c) STEP(STEP(STEP(STEP((uint32_t)(c)))))
#define ROW4(i)  STEP4(i), STEP4((i) + 1), STEP4((i) + 2), STEP4((i) + 3)

static const uint32_t nibbles[16] = { ROW4(0), ROW4(4), ROW4(8), ROW4(12) };

uint32_t tsr_crc32c(uint32_t crc, const void *data, uint64_t bytes)
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
