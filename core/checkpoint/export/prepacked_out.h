/* checkpoint/export/prepacked_out.h - writes a prepacked file: page-aligned parts, their index entries, then
 * header and index. */
#ifndef TSR_CHECKPOINT_EXPORT_PREPACKED_OUT_H
#define TSR_CHECKPOINT_EXPORT_PREPACKED_OUT_H

#include "base/output.h"
#include "checkpoint/prepacked/prepacked.h"

struct tsr_export_prepacked_out {
    const char     *path; /* the final name */
    struct tsr_err *err;
    json_t         *index;                     /* filled by the caller too */
    json_t         *weights, *kinds, *details; /* of the index, of it, and the text of that name */
    struct tsr_writer file;
    unsigned char    *stage;
    uint64_t          staged, at; /* at: bytes so far, staged ones too */
};

/* Errors of the file itself are sticky and come from tsr_export_prepacked_end().  [setup] */
tsr_status tsr_export_prepacked_begin(struct tsr_export_prepacked_out *o, const char *path,
                                      bool replace, struct tsr_err *err);
/* Zeros up to the next page; its place. */
uint64_t tsr_export_prepacked_page(struct tsr_export_prepacked_out *o);
void tsr_export_prepacked_put(struct tsr_export_prepacked_out *o, const void *data, uint64_t bytes);
/* Records a weight, which is in the file from `at` on: place and kind in the index; in the details its hash
 * and what they hold already.  Takes kind and details; NULL: there was no memory for them. */
tsr_status tsr_export_prepacked_weight(struct tsr_export_prepacked_out *o, const char *name,
                                       uint64_t at, uint64_t bytes, const char *hash, json_t *kind,
                                       json_t *details);
/* A part that is in memory: from the next page on, and recorded in `to` under `name`. */
tsr_status tsr_export_prepacked_block(struct tsr_export_prepacked_out *o, json_t *to,
                                      const char *name, const void *data, uint64_t bytes);
/* Details, index and head; then the file is read back from the disk, compared with its hashes, and gets its
 * name. */
tsr_status tsr_export_prepacked_end(struct tsr_export_prepacked_out *o, struct tsr_pool *pool,
                                    uint64_t *bytes);
/* Frees everything; a file that was not ended is removed. */
void tsr_export_prepacked_abort(struct tsr_export_prepacked_out *o);

#endif
