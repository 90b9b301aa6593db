/* checkpoint/import/gptq.h - what the configuration of a GPTQ checkpoint says, for the reader of its tensors. */
#ifndef TSR_CHECKPOINT_IMPORT_GPTQ_H
#define TSR_CHECKPOINT_IMPORT_GPTQ_H

#include "checkpoint/import/import.h"

/* Of the whole checkpoint, or of the modules of a rule. */
struct tsr_import_gptq_scheme {
    int64_t bits, group;
    bool    sym;
};

struct tsr_import_gptq_rule {
    struct tsr_import_rule rule;
    bool                   skip, has_sym, sym;
    int64_t                bits, group; /* UNSET: as the checkpoint */
};

struct tsr_import_gptq {
    struct tsr_import_gptq_scheme scheme;
    bool v2, said, by_word; /* by_word: v1 was made by subtracting from whole words */
    struct tsr_import_gptq_rule *rules;
    uint64_t                     n_rules;
    double                       sum; /* of code - zero over a sample of an asymmetric checkpoint */
    uint64_t                     n;
};

/* im->own becomes a struct tsr_import_gptq; close() frees it. */
tsr_status tsr_import_gptq_open(struct tsr_import *im);
void       tsr_import_gptq_close(void *own);
/* The scheme of the linear `name`: the checkpoint's, changed by the first rule that matches. */
tsr_status tsr_import_gptq_scheme_of(struct tsr_import *im, const char *name,
                                     struct tsr_import_gptq_scheme *s);

#endif
