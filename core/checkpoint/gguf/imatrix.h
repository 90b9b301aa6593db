/* checkpoint/gguf/imatrix.h - importance matrices of llama.cpp: for each tensor the mean square of every column of its
 * inputs.  A GGUF file of type "imatrix", or the older binary form.
 */
#ifndef TSR_CHECKPOINT_GGUF_IMATRIX_H
#define TSR_CHECKPOINT_GGUF_IMATRIX_H

#include "base/err.h"

struct tsr_gguf_imatrix_entry {
    char    *name;   /* "blk.0.attn_q.weight" */
    uint64_t n;      /* columns, of all experts of a stack one after the other */
    float   *square; /* [n]: mean squares; 1 for an expert without inputs */
};

struct tsr_gguf_imatrix {
    char                          *path; /* for messages */
    struct tsr_gguf_imatrix_entry *v;    /* by name */
    uint64_t                       n;
};

/* TSR_E_INPUT for a file that is neither form, or has a value that is negative or not finite.  [setup] */
tsr_status tsr_gguf_imatrix_read(struct tsr_gguf_imatrix *m, const char *path, struct tsr_err *err);
void       tsr_gguf_imatrix_free(struct tsr_gguf_imatrix *m);
/* NULL: the file has no such tensor. */
const struct tsr_gguf_imatrix_entry *tsr_gguf_imatrix_find(const struct tsr_gguf_imatrix *m,
                                                           const char                    *name);

#endif
