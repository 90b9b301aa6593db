/* plan/cost/quality.h - omega[L][Q]: how much each layer suffers under each candidate. */
#ifndef TSR_PLAN_COST_QUALITY_H
#define TSR_PLAN_COST_QUALITY_H

#include "plan/cost/candidate.h"

struct tsr_plan_quality {
    double  *omega; /* [layers][candidates], >= 0; owned */
    uint64_t layers, candidates;
    bool     prior;     /* no measurement: `quality: prior` */
    char     basis[64]; /* "prior", "variance of indicators.json" */
    char     experts
        [24]; /* "hessian": the table whose numbers of single experts divide a layer's; "": none */
    char   hash[48];  /* of the indicator file; "" for the prior */
    char   model[48]; /* hash of the model that it was measured on; "" for the prior.  Of a model
                           whose headers alone were read the hash is another: the caller compares */
    double raised;    /* sum of the raises of negative entries (measured can fall) */
    double
        eight; /* the sum over layers at 8 bits, which stands for a KV cache of int8 (docs/decisions/settings.md);
                   * NAN: the file has no such width */
};

/* From a file tessera.indicators/1 (docs/formats/indicators.md). table: "variance", "hessian", ... ; "" or
 * NULL: the first available of measured, hessian, variance. A candidate takes the column of its bits; bit
 * widths between two of the file are interpolated in log omega, the original is 0. A file with another
 * number of layers, or that lacks a bit width, is TSR_E_INPUT. A mix of the linears of a layer has of each the part that
 * the file says of experts; else by the weights, and by the tokens that take experts. [setup] */
tsr_status tsr_plan_quality_load(struct tsr_plan_quality *q, const char *path, const char *table,
                                 const struct tsr_plan_shape      *s,
                                 const struct tsr_plan_candidates *c, struct tsr_err *err);
/* The same from text; name is the file name in messages. */
tsr_status tsr_plan_quality_parse(struct tsr_plan_quality *q, const char *name, const char *text,
                                  uint64_t len, const char *table, const struct tsr_plan_shape *s,
                                  const struct tsr_plan_candidates *c, struct tsr_err *err);
/* How much single experts suffer, into s->suffers, before their groups are made; nothing where the file does not say.
 * As above.  [setup] */
tsr_status tsr_plan_quality_order(struct tsr_plan_shape *s, const char *path, const char *table,
                                  struct tsr_err *err);
/* Without a file: weights of the layer times 4^-bits, over the mean layer's at 4 bits; 0 for the
 * original.  A quarter for each bit is the variance of uniform rounding (LLM-PQ, theorem 1). */
tsr_status tsr_plan_quality_prior(struct tsr_plan_quality *q, const struct tsr_plan_shape *s,
                                  const struct tsr_plan_candidates *c, struct tsr_err *err);
void       tsr_plan_quality_free(struct tsr_plan_quality *q); /* zeroed or filled */

/* The sum over layers with candidate i everywhere: the meaning of `at_least: uniform-4`. */
double tsr_plan_quality_uniform(const struct tsr_plan_quality *q, uint64_t candidate);

#endif
