/* pipeline/compare.h - parts of the step `compare`: its options and arms, speed, the table. */
#ifndef TSR_PIPELINE_COMPARE_H
#define TSR_PIPELINE_COMPARE_H

#include "pipeline/sample.h"

struct compare_keys {
    const struct tsr_node *arms, *measure, *samples, *sampling;
};
struct measure_keys {
    const struct tsr_node *perplexity, *speed;
    int32_t                kl, a8;
};
struct speed_keys {
    int64_t prompt, generate, repeats, act;
};

/* One column of numbers.  Arm 0 is the original. */
struct compare_arm {
    const char            *name;
    const struct tsr_node *quantize;  /* NULL: the original */
    struct tsr_overlay    *overlay;   /* owned */
    struct tsr_engine     *engine;    /* of the measurement in work; owned */
    struct tsr_engine     *engine_a8; /* the same under act a8, with measure.a8; owned */
    tsr_status             status;    /* the first thing that failed in this arm */
    struct tsr_errbuf      error;
    uint64_t               bytes;
    double                 bits;
    bool                   has_eval, has_a8, has_speed;
    struct tsr_eval_result eval, a8;
    double                *prefill, *decode; /* [repeats] tokens/s */
    double                 prefill_median, decode_median;
    json_t                *texts; /* samples; owned */
};

struct compare {
    struct tsr_job        *job;
    struct compare_keys    keys;
    struct measure_keys    measure;
    struct tsr_eval_keys   eval;
    struct speed_keys      speed;
    struct tsr_sample_keys sample;
    bool                   do_eval, do_speed;
    struct compare_arm    *arms;
    uint64_t               n;
    uint64_t               weights;
    struct tsr_windows    *windows;
    char                   device[128];
};

/* Puts the failure into the arm, once.  TSR_E_CANCELLED and TSR_E_NOMEM are handed back in err,
 * since nothing can go on after them. */
tsr_status compare_arm_failed(struct compare_arm *a, tsr_status st, const char *text,
                              struct tsr_err *err);

/* Prefill and decode speed of every arm that still stands, interleaved, medians. */
tsr_status compare_speed(struct compare *c, struct tsr_err *err);

/* The result, and its table for people. */
json_t *compare_json(const struct compare *c);
void    compare_print(const json_t *result, FILE *to);

#endif
