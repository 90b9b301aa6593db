/* rotate/rotate.h - a model with other weights and the same function: its hidden state, the values of its heads, or both are
 * expressed in a rotated basis (QuaRot, SpinQuant: R1 and R2), and so are its keys and the inputs of down by transforms that
 * run with the model (R3 and R4).  No weight and no activation of the rotated sites has
 * outlying channels then, whatever quantizer follows.
 *
 *   residual (R1)  norm gains go into the linears that read the norm; then, with an orthogonal Q [hidden, hidden], what
 *                  writes the hidden state gives h Q in place of h, and what reads it expects that
 *   heads (R2)     v gives v Q_l for each head, with one Q_l [head, head] per layer, and o expects that
 *   keys (R3)      queries and keys of a head times one Hadamard matrix, after they rotated: scores stay
 *   down (R4)      the input of down in runs of columns times one Hadamard matrix, and down expects that
 */
#ifndef TSR_ROTATE_ROTATE_H
#define TSR_ROTATE_ROTATE_H

#include "checkpoint/export/export.h"
#include "rotate/orthogonal.h"
#include "rotate/sites.h"

struct tsr_rotate_options {
    enum tsr_orthogonal_kind kind;
    uint32_t                 sites; /* TSR_ROTATE_* */
    uint64_t                 seed;
    uint32_t dtype; /* of all matrices: TSR_F32 keeps the function, TSR_F16 and TSR_BF16 round */
    struct tsr_pool *pool;    /* or NULL */
    bool             replace; /* the existing folder is from an earlier run */
};

/* TSR_E_INPUT with the reason if the model has no structure that such a rotation leaves its function to. */
tsr_status tsr_rotate_check(const struct tsr_model *m, const struct tsr_rotate_options *o,
                            struct tsr_err *err);
/* Writes the rotated model as a Hugging Face folder, which appears when it is whole.  The LM head of a tied model becomes a
 * matrix of its own, since norm gains go into it and not into the embedding.  One layer of a streamed model is in
 * memory at a time.  The same arguments give the same bytes.  [setup] */
tsr_status tsr_rotate(const struct tsr_model *m, const char *folder,
                      const struct tsr_rotate_options *o, struct tsr_export_report *report,
                      struct tsr_err *err);

#endif
