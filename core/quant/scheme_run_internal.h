/* quant/scheme_run_internal.h - applying a scheme: scheme_rules.c finds the quantizer of a linear, scheme_run.c
 * quantizes. */
#ifndef TSR_QUANT_SCHEME_RUN_INTERNAL_H
#define TSR_QUANT_SCHEME_RUN_INTERNAL_H

#include "quant/remarks.h"
#include "quant/scheme_internal.h"
#include "quant/scheme_run.h"

#include <pthread.h>

#define TSR_QUANT_HEAD_NAME "lm_head"

/* A plugin with one set of options, alive while the scheme runs. */
struct tsr_quant_scheme_instance {
    bool                *flags; /* [n_rules] that lead here; owned */
    struct choice        choice;
    struct tsr_quantizer q;
};

struct tsr_scheme_run {
    const struct tsr_quant_scheme     *s;
    struct tsr_registry               *registry;
    const struct tsr_model            *m;
    bool                             **layers; /* [n_rules] -> [layers], or NULL: all */
    uint64_t                           total;
    pthread_mutex_t                    lock; /* guards the rest */
    struct tsr_quant_scheme_instance **instances;
    uint64_t                           n_instances, cap;
    uint64_t                          *matches; /* [n_rules] */
    bool                              *flags;   /* [n_rules] scratch */
    struct tsr_quant_remarks           remarks;
    uint64_t                           done;
};

/* NULL: the linear is not quantized. */
tsr_status tsr_quant_scheme_instance(struct tsr_scheme_run *a, uint64_t layer, const char *name,
                                     struct tsr_quant_scheme_instance **in, struct tsr_err *err);

#endif
