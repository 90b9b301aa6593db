/* model/pieces.h - a layer in pieces, for callers that need less than a whole layer at a time, or only
 * part of it.
 *
 * Each linear of a layer is in one piece: a stored tensor with all linears that it contains.  If a
 * linear is split (packed_slice.h), only the required part is read.
 */
#ifndef TSR_MODEL_PIECES_H
#define TSR_MODEL_PIECES_H

#include "model/packed_slice.h"

struct tsr_model_layer_piece {
    uint64_t bytes;   /* that are read; 0: its only linear is in memory anyhow, or packed */
    uint64_t room;    /* memory for them: each linear begins at a multiple of 64 */
    uint64_t load;    /* the model's own */
    uint32_t linears; /* 1 << id; not 0 */
    struct tsr_model_slice part[TSR_LINEARS]; /* the part of each to read; initially all of it */
};

/* In the order of the first linear of each; returns how many. */
uint32_t tsr_model_pieces(const struct tsr_model *m, uint64_t layer,
                          struct tsr_model_layer_piece piece[TSR_LINEARS]);
/* Restricts reading of a linear of the piece to s, which is within it. */
void tsr_model_piece_cut(const struct tsr_model *m, uint64_t layer,
                         struct tsr_model_layer_piece *piece, enum tsr_linear_id id,
                         const struct tsr_model_slice *s);
/* Reads a piece into the caller's memory (`room` bytes, aligned to 64).  w gets its linears, each the
 * part that was read; for a piece without bytes they are views of the model's data.  The others are
 * unchanged.  TSR_E_INPUT as tsr_model_open_layer().  [setup] */
tsr_status tsr_model_read_piece(const struct tsr_model *m, uint64_t layer,
                                const struct tsr_model_layer_piece *piece, void *to,
                                struct tsr_matrix w[TSR_LINEARS], struct tsr_err *err);

#endif
