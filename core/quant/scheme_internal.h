/* quant/scheme_internal.h - shared by scheme.c (reading) and apply.c (running). */
#ifndef TSR_QUANT_SCHEME_INTERNAL_H
#define TSR_QUANT_SCHEME_INTERNAL_H

#include "quant/scheme.h"

enum { UNSUPPORTED_STOP, UNSUPPORTED_KEEP };

/* Keys of a rule that are ours. */
struct rule {
    const struct tsr_config_node *node;
    const char                   *use, *layers, *experts, *tensors; /* "" when absent */
    int32_t                       keep;
    int64_t                       model_layers; /* that `layers` was written for; 0: any */
};

struct tsr_quant_scheme {
    struct tsr_registry          *registry;
    const struct tsr_config_node *map;
    char                          what[112]; /* prefix of messages: "step 'quantize'" */
    struct tsr_quant_scheme_keys  keys;
    struct rule                  *rules;
    uint64_t                      n_rules;
};

/* The plugin and the options that hold when the flagged rules apply (flags NULL: none). */
struct choice {
    struct tsr_plugin_found found;
    void                   *options; /* the plugin's struct; owned */
};
/* Wrong options go to d. */
tsr_status scheme_choose(const struct tsr_quant_scheme *s, const bool *flags, struct choice *c,
                         struct tsr_diag *d, struct tsr_err *err);

#endif
