/* checkpoint.h - recorded cases of tests/golden/checkpoints. */
#ifndef TSR_TEST_CHECKPOINT_H
#define TSR_TEST_CHECKPOINT_H

#include "golden.h"

#define CHECKPOINTS TSR_SOURCE_ROOT "/tests/golden/checkpoints/"

struct checkpoint_rows {
    char     name[128]; /* "model.layers.0.self_attn.k_proj" */
    float   *rows;      /* its first n dequantized rows, recorded */
    uint64_t n, cols;
};
#define CHECKPOINT_ROWS 4

struct checkpoint {
    uint32_t              *prompt;
    uint64_t               n;
    float                 *logits; /* [n, vocab], recorded */
    struct checkpoint_rows rows[CHECKPOINT_ROWS];
    uint64_t               n_rows, vocab;
};

/* Fail the running test on any error.  name: the case's folder. */
void checkpoint_load(struct checkpoint *c, const char *name);
void checkpoint_free(struct checkpoint *c);

/* The model at path gives the recorded logits, whole and token by token. */
void checkpoint_check_logits(const char *what, struct tsr_registry *r, const struct tsr_model *m,
                             const struct checkpoint *c);
/* The model's rows are the recorded ones, to the last bit. */
void checkpoint_check_rows(const char *what, const struct tsr_model *m, const struct checkpoint *c);

#endif
