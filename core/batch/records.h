/* batch/records.h - the input of a batch: a file of JSON lines, one request each. */
#ifndef TSR_BATCH_RECORDS_H
#define TSR_BATCH_RECORDS_H

#include "base/file.h"
#include "base/hash.h"

#define TSR_LINE_MOST (16u << 20) /* bytes of a line */

struct tsr_batch_records {
    struct tsr_file file;
    uint64_t        lines; /* of the file */
    uint64_t       *at;    /* [lines + 1]: their start offsets; the last is the size of the file */
    uint64_t        first, n;            /* those of this run: a shard, at most a limit */
    uint64_t        choices;             /* that the lines of the file ask for, each at least one */
    char            hash[TSR_HASH_TEXT]; /* of the whole file */
};

/* Reads the file once.  Two lines with one custom_id are TSR_E_INPUT naming both lines; invalid
 * requests are not checked here.  limit 0: no limit.  The records are split into `shards`
 * contiguous ranges, and range `shard` (from 1) is taken, so that the concatenated outputs equal
 * the output of the whole. */
tsr_status tsr_batch_records_open(struct tsr_batch_records *r, const char *path, uint64_t limit,
                                  uint64_t shard, uint64_t shards, struct tsr_err *err);
void       tsr_batch_records_close(struct tsr_batch_records *r);
/* The text of a record of this run without its line end, in fresh memory, NUL-terminated.  Longer
 * than TSR_LINE_MOST: TSR_E_INPUT.  TSR_E_IO when the file changed. */
tsr_status tsr_batch_records_read(const struct tsr_batch_records *r, uint64_t index, char **line,
                                  uint64_t *len, struct tsr_err *err);
/* Number of a record's line in the file, from 1. */
uint64_t tsr_batch_records_line(const struct tsr_batch_records *r, uint64_t index);

#endif
