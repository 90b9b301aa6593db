/* checkpoint/import/ct.h - compressed-tensors: the data of a config group, shared by the reader of
 * the configuration (ct.c) and those of the tensors (ct_read.c, ct_float.c).
 */
#ifndef TSR_CHECKPOINT_IMPORT_CT_H
#define TSR_CHECKPOINT_IMPORT_CT_H

#include "checkpoint/import/import.h"

enum tsr_ct_strategy {
    TSR_IMPORT_CT_TENSOR,
    TSR_IMPORT_CT_CHANNEL,
    TSR_IMPORT_CT_GROUP,
    TSR_IMPORT_CT_BLOCK
};

/* The weights of a group. */
struct tsr_import_ct_scheme {
    bool                 is_float, symmetric, by_order; /* by_order: columns have g_idx */
    uint32_t             bits;
    enum tsr_ct_strategy strategy;
    uint64_t             group;    /* GROUP; 0: not given */
    uint64_t             block[2]; /* BLOCK: rows, columns */
};

/* A linear while it is read. */
struct tsr_import_ct_linear {
    const struct tsr_import_ct_scheme *s;
    const char                        *name, *scale_name;         /* NULL: "weight_scale" */
    uint64_t                           rows, cols, group, groups; /* group: columns of one scale */
    struct tsr_checkpoint_stored      *scale;
    float                             *scales; /* [rows, groups] */
    uint8_t                           *zeros, *bytes_of_scale;
    uint32_t                          *order;
    void                              *data;     /* the codes as stored */
    uint64_t                           width;    /* bytes of a row of data */
    uint32_t                           per_word; /* codes in a word; 0: dense */
};

void tsr_import_ct_free(struct tsr_import_ct_linear *l);
/* Takes what belongs to activations, which run as the command says and not as the checkpoint does. */
void tsr_import_ct_leave_activations(struct tsr_import *im, const char *name);
/* Scales, as biased bytes if stored that way (MX), else as floats; and the value of "weight_shape"
 * if it is present. */
tsr_status tsr_import_ct_scales(struct tsr_import *im, struct tsr_import_ct_linear *l);
tsr_status tsr_import_ct_check_shape(struct tsr_import *im, const struct tsr_import_ct_linear *l);
tsr_status tsr_import_ct_fp8(struct tsr_import *im, struct tsr_import_ct_linear *l,
                             struct tsr_model_packed **out);
tsr_status tsr_import_ct_fp4(struct tsr_import *im, struct tsr_import_ct_linear *l,
                             struct tsr_model_packed **out);
tsr_status tsr_import_ct_int(struct tsr_import *im, struct tsr_import_ct_linear *l,
                             struct tsr_model_packed **out);

#endif
