/* eval/codec_file.h - a codec's frozen calibration in a file (docs/formats/codec-state.md): of one
 * model, its weights, one codec with options, algorithm and number of ranks.  Another key is refused.
 */
#ifndef TSR_EVAL_CODEC_FILE_H
#define TSR_EVAL_CODEC_FILE_H

#include "base/hash.h"
#include "comm/coder.h"
#include "model/model.h"

struct tsr_eval_codec_key {
    char        model[48];   /* of the model that was packed, or of the stored model */
    char        weights[48]; /* of what was packed, in memory or a folder; "stored": nothing */
    const char *codec;       /* "int4_bf16:bits=3", as written */
    enum tsr_comm_algorithm algorithm;
    uint32_t                ranks, act; /* TSR_ACT_* */
};

/* Fills model and weights, which are the same for what was packed in memory and for the tessera.packed/1
 * folder that it was stored in.  o: the overlay that runs; NULL or the model's own: as stored.  Reads a
 * folder's layers that are not in memory, one at a time.  [setup] */
tsr_status tsr_eval_codec_key_model(struct tsr_eval_codec_key *k, const struct tsr_model *m,
                                    const struct tsr_model_overlay *o, struct tsr_err *err);

/* text: hash of the calibration text.  The file is written atomically. */
tsr_status tsr_eval_codec_file_write(const char *path, const struct tsr_eval_codec_key *k,
                                     const char *text, const struct tsr_comm_state *states,
                                     uint64_t n, struct tsr_err *err);

struct tsr_eval_codec_file {
    struct tsr_comm_state *states; /* tsr_comm_way.states; data owned */
    uint64_t               n;
    char                   text[TSR_HASH_TEXT];
};
/* TSR_E_INPUT naming what differs from the key; damaged files are refused. */
tsr_status tsr_eval_codec_file_load(struct tsr_eval_codec_file **f, const char *path,
                                    const struct tsr_eval_codec_key *k, struct tsr_err *err);
void       tsr_eval_codec_file_free(struct tsr_eval_codec_file *f); /* NULL is allowed */

#endif
