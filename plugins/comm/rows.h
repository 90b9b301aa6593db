/* rows.h - shared by the codecs whose wire is one run of bytes for each row. */
#ifndef TSR_PLUGINS_COMM_ROWS_H
#define TSR_PLUGINS_COMM_ROWS_H

#include "tessera/codec.h"

#define U(x) ((unsigned long long)(x))

/* rows * row bytes, if they and the rows' numbers fit into memory. */
static inline tsr_status rows_bytes(const char *codec, uint64_t rows, uint64_t cols, uint64_t row,
                                    uint64_t *bytes, struct tsr_err *err)
{
    uint64_t n;
    if (__builtin_mul_overflow(rows, row, bytes) || __builtin_mul_overflow(rows, cols, &n) ||
        n > UINT64_MAX / 8)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: %llu x %llu elements are too many", codec,
                        U(rows), U(cols));
    return TSR_OK;
}

/* TSR_E_INVAL where a message has other bytes than it needs, or a buffer is missing. */
static inline tsr_status rows_message(const char *codec, const struct tsr_codec_job *job,
                                      const void *data, uint64_t bytes, struct tsr_err *err)
{
    if (bytes == job->wire_bytes && (bytes == 0 || (data && job->wire)))
        return TSR_OK;
    return tsr_fail(err, TSR_E_INVAL,
                    "%s: site %u, source %u: %llu wire bytes were given for %llu x %llu, %llu are "
                    "needed, with both buffers",
                    codec, job->site, job->source, U(job->wire_bytes), U(job->rows), U(job->cols),
                    U(bytes));
}

#endif
