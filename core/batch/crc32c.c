#include "batch/crc32c.h"

uint32_t tsr_batch_crc32c(uint32_t crc, const void *data, uint64_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) /* which asks the processor once in a process */
        return tsr_crc32c_by(TSR_CRC32C_SSE42, crc, data, bytes);
#endif
    return tsr_crc32c_portable(crc, data, bytes);
}
