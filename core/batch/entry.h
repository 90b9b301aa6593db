/* batch/entry.h - one frame of a journal, little endian:
 *
 *   magic u32 | version u16 | type u16 | epoch u64 | index u64 | attempt u16 | flags u16 | len u32 |
 *   payload [len] | crc32c u32 over all of it before
 *
 * The checksum is seeded with that of the job's id (HEADER: with 0), so that a frame of another job
 * is invalid here.  The magic contains a control character, which no payload contains: JSON escapes
 * them.
 */
#ifndef TSR_BATCH_ENTRY_H
#define TSR_BATCH_ENTRY_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_ENTRY_HEAD 32u
#define TSR_ENTRY_TAIL 4u
#define TSR_ENTRY_MOST (64u << 20) /* of payload */

enum tsr_entry_type {
    TSR_BATCH_ENTRY_HEADER = 1, /* first; payload: the job's identity */
    TSR_BATCH_ENTRY_RESULT,     /* payload: the record's output line without its newline */
    TSR_BATCH_ENTRY_ERROR,      /* the same, of a record that failed */
    TSR_BATCH_ENTRY_LEASE,      /* the record is in progress; not synced.  payload: as of EPOCH */
    TSR_BATCH_ENTRY_EPOCH,      /* a start; attempt: how the one before ended (enum tsr_verdict).
                         * payload: 8 bytes, how much of the file was on the disk by then */
    TSR_BATCH_ENTRY_SEAL,       /* all records are there; payload: hash of the output file */
};

#define TSR_ENTRY_RETRY 1u /* EPOCH: preceding error lines are void */

struct tsr_batch_entry {
    enum tsr_entry_type type;
    uint64_t            epoch, index;
    uint16_t            attempt, flags;
    uint32_t            len;
    const char         *payload;
};

/* The frame at the start of n bytes.  1: whole and right; 0: wrong; -1: more bytes could make it
 * right, *need in all.  payload points into data. */
int tsr_batch_entry_read(const void *data, uint64_t n, uint32_t seed, struct tsr_batch_entry *f,
                         uint64_t *need);
/* Of a LEASE or EPOCH: all preceding bytes were on the disk when it was written; 0: of others. */
uint64_t tsr_batch_entry_synced(const struct tsr_batch_entry *f);
void     tsr_batch_entry_put_synced(unsigned char payload[8], uint64_t bytes);
/* Size of a frame in bytes. */
uint64_t tsr_batch_entry_bytes(uint32_t len);
/* Writes it to out [tsr_batch_entry_bytes()]. */
void tsr_batch_entry_write(const struct tsr_batch_entry *f, uint32_t seed, void *out);

#endif
