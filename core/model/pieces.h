/* model/pieces.h - a layer in pieces, for callers that need less than a whole layer at a time, or only
 * part of it.
 *
 * Each linear of a layer is in one piece: a stored tensor with all linears that it contains.  If a
 * linear is split (packed_slice.h), only the required part is read.
 */
#ifndef TSR_MODEL_PIECES_H
#define TSR_MODEL_PIECES_H

#include "model/packed_slice.h"

struct tsr_model_piece_linear {
    enum tsr_linear_id     id;
    struct tsr_model_slice part; /* that is read; initially all of it */
    struct tsr_matrix      w;    /* the part, once it is read */
};
struct tsr_model_layer_piece {
    uint64_t bytes; /* that are read; 0: its only linear is in memory anyhow, or packed */
    uint64_t room;  /* memory for them: each linear begins at a multiple of 64 */
    uint64_t load;  /* the model's own */
    uint64_t n;     /* linears, not 0, in the order of their ids */
    struct tsr_model_piece_linear *lin; /* in the caller's array */
};

/* In the order of the first linear of each; returns how many.  piece and lin have room for hparams.linears. */
uint64_t tsr_model_pieces(const struct tsr_model *m, uint64_t layer,
                          struct tsr_model_layer_piece *piece, struct tsr_model_piece_linear *lin);
/* Restricts reading of linear i of the piece to s, which is within it. */
void tsr_model_piece_cut(const struct tsr_model *m, uint64_t layer,
                         struct tsr_model_layer_piece *piece, uint64_t i,
                         const struct tsr_model_slice *s);
/* Reads a piece into the caller's memory (`room` bytes, aligned to 64), and sets w of its linears: each the part that was
 * read, or for a piece without bytes views of the model's data.  TSR_E_INPUT as tsr_model_open_layer().  [setup] */
tsr_status tsr_model_read_piece(const struct tsr_model *m, uint64_t layer,
                                const struct tsr_model_layer_piece *piece, void *to,
                                struct tsr_err *err);

#endif
