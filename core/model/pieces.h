/* model/pieces.h - a layer in pieces, for who wants less than a layer at a time, or less than all of it.
 *
 * Each linear of a layer is in one piece: a stored tensor with all linears that lie in it.  Of a linear
 * that is cut to a part (packed_slice.h) nothing else is read.
 */
#ifndef TSR_MODEL_PIECES_H
#define TSR_MODEL_PIECES_H

#include "model/packed_slice.h"

struct tsr_layer_piece {
    uint64_t         bytes;   /* that are read; 0: its only linear is in memory anyhow, or packed */
    uint64_t         room;    /* memory for them: each linear begins at a multiple of 64 */
    uint64_t         load;    /* the model's own */
    uint32_t         linears; /* 1 << id; not 0 */
    struct tsr_slice part[TSR_LINEARS]; /* what is read of each; at first all of it */
};

/* In the order of the first linear of each; returns how many. */
uint32_t tsr_model_pieces(const struct tsr_model *m, uint64_t layer,
                          struct tsr_layer_piece piece[TSR_LINEARS]);
/* Of a linear of the piece, s, which lies within it, is read and nothing else. */
void tsr_piece_cut(const struct tsr_model *m, uint64_t layer, struct tsr_layer_piece *piece,
                   enum tsr_linear_id id, const struct tsr_slice *s);
/* Reads a piece into memory of the caller's (`room` bytes, aligned to 64).  w gets its linears, each the
 * part that was read; of a piece without bytes they are views on what the model has.  The others are not
 * touched.  TSR_E_INPUT as tsr_model_open_layer().  [setup] */
tsr_status tsr_model_read_piece(const struct tsr_model *m, uint64_t layer,
                                const struct tsr_layer_piece *piece, void *to,
                                struct tsr_matrix w[TSR_LINEARS], struct tsr_err *err);

#endif
