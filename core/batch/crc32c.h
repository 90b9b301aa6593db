/* batch/crc32c.h - CRC-32C of journal frames, by the best way of this machine; tessera/crc32c.h has the ways. */
#ifndef TSR_BATCH_CRC32C_H
#define TSR_BATCH_CRC32C_H

#include "tessera/crc32c.h"

/* Start with 0; the result of one call continues in the next.  [any] */
uint32_t tsr_batch_crc32c(uint32_t crc, const void *data, uint64_t bytes);

#endif
