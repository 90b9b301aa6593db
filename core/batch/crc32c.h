/* batch/crc32c.h - CRC-32C (Castagnoli) of journal frames. */
#ifndef TSR_BATCH_CRC32C_H
#define TSR_BATCH_CRC32C_H

#include <stdint.h>

/* Start with 0; the result of one call continues in the next.  [any] */
uint32_t tsr_crc32c(uint32_t crc, const void *data, uint64_t bytes);
/* The same on a machine without an instruction for it.  [any] */
uint32_t tsr_crc32c_portable(uint32_t crc, const void *data, uint64_t bytes);

#endif
