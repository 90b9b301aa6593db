/* plan/quality.h - omega[L][Q]: how much each layer suffers under each candidate. */
#ifndef TSR_PLAN_QUALITY_H
#define TSR_PLAN_QUALITY_H

#include "plan/candidate.h"

struct tsr_quality {
    double  *omega; /* [layers][candidates], >= 0; owned */
    uint64_t layers, candidates;
    bool     prior;     /* no measurement: say `quality: prior` */
    char     basis[64]; /* "prior", "variance of indicators.json" */
    char     hash[48];  /* of the indicator file; "" for the prior */
    char     model[48]; /* hash of the model that it was measured on; "" for the prior.  Of a model
                           whose headers alone were read the hash is another: the caller compares */
    double   raised;    /* sum of what negative entries were raised by (measured can fall) */
};

/* From a file tessera.indicators/1 (docs/formats/indicators.md).  table: "variance", "hessian", ... ;
 * "" or NULL: the first of measured, hessian, variance that is there.  A candidate takes the column
 * of its bits; widths between two of the file are interpolated in log omega, the original is 0.
 * A file of another number of layers, or without a width, is TSR_E_INPUT.  [setup] */
tsr_status tsr_quality_load(struct tsr_quality *q, const char *path, const char *table,
                            const struct tsr_shape *s, const struct tsr_candidates *c,
                            struct tsr_err *err);
/* The same from text; name stands for the file. */
tsr_status tsr_quality_parse(struct tsr_quality *q, const char *name, const char *text,
                             uint64_t len, const char *table, const struct tsr_shape *s,
                             const struct tsr_candidates *c, struct tsr_err *err);
/* Without a file: weights of the layer times 4^-bits, over the mean layer's at 4 bits; 0 for the
 * original.  A quarter for each bit is the variance of uniform rounding (LLM-PQ, theorem 1). */
tsr_status tsr_quality_prior(struct tsr_quality *q, const struct tsr_shape *s,
                             const struct tsr_candidates *c, struct tsr_err *err);
void       tsr_quality_free(struct tsr_quality *q); /* zeroed or filled */

/* The sum over layers with candidate i everywhere: what `at_least: uniform-4` means. */
double tsr_quality_uniform(const struct tsr_quality *q, uint64_t candidate);

#endif
