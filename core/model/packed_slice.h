/* model/packed_slice.h - the part of a matrix that one rank of a tensor-parallel group holds: rows of the
 * linears that a layer begins with (q, k, v, gate, up), columns of those that it sums over (o, down).
 *
 * Columns are cut at the segments of docs/decisions/numerics.md: rank r of N holds the segments
 * [8r/N, 8(r+1)/N) of the whole, with the width that they have there.  The sums of such parts, added
 * as a tree over the ranks, are the whole linear's sum to the bit.
 */
#ifndef TSR_MODEL_PACKED_SLICE_H
#define TSR_MODEL_PACKED_SLICE_H

#include "model/packed.h"

/* Columns of a segment of a linear of cols columns. */
static inline uint64_t tsr_segment_columns(uint64_t cols)
{
    return 32 * (cols / 256 + (cols % 256 != 0));
}

struct tsr_model_slice {
    uint64_t row, rows, col, cols;
    uint64_t segment; /* columns of a segment of the whole; 0: all columns are here */
};

/* A matrix, as far as it matters to a cut. */
struct tsr_model_cut {
    const char *name; /* for messages */
    uint64_t    rows, cols;
    const struct tsr_format
        *format;   /* NULL: dense, or a plugin's own format, whose columns are cut after decoding */
    bool ordered;  /* its columns are permuted */
    uint64_t unit; /* columns that stay together, such as those of the heads that
                                       * share a KV head; 0: none */
};
/* p: its format and order, else what m is; unit is 0. */
struct tsr_model_cut tsr_model_cut_of(const struct tsr_matrix *m, const struct tsr_model_packed *p);

/* The columns of rank `rank` of `ranks`, all rows.  TSR_E_CONFIG if that number of ranks is not
 * possible; the message lists the possible ones.  [any] */
tsr_status tsr_model_slice_columns(const struct tsr_model_cut *c, uint32_t rank, uint32_t ranks,
                                   struct tsr_model_slice *s, struct tsr_err *err);
/* True if tsr_model_slice_columns() works for every rank of `ranks`. */
bool tsr_model_slice_allowed(const struct tsr_model_cut *c, uint32_t ranks);
/* The columns of rank `rank` of `ranks` simulated ranks, 1 to 64: as above where that works (`unit`
 * apart), else even shares of whole groups and 32 columns.  Dense weights may have any number of columns
 * and their own segments.  TSR_E_CONFIG if there are too few columns.  [any] */
tsr_status tsr_model_slice_share(const struct tsr_model_cut *c, uint32_t rank, uint32_t ranks,
                                 struct tsr_model_slice *s, struct tsr_err *err);
/* Rows [first, first + rows), all columns. */
struct tsr_model_slice tsr_model_slice_rows(const struct tsr_model_cut *c, uint64_t first,
                                            uint64_t rows);

/* The part as a view that owns no memory.  m->data may be NULL (headers only). */
struct tsr_matrix tsr_model_matrix_slice(const struct tsr_matrix      *m,
                                         const struct tsr_model_slice *s);
/* The part as separate packed weights with the same values; of a plugin's own format with whole units and all
 * columns, of which it decodes its own; squared_error and report are those of the
 * whole.  p must have its bytes.  TSR_E_BUG for columns that tsr_model_slice_columns() would not
 * return. */
tsr_status tsr_model_packed_slice(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                                  struct tsr_model_packed **out, struct tsr_err *err);

#endif
