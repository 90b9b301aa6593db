/* plan/cost/quality.h - omega[L][Q]: how much each layer suffers under each candidate. */
#ifndef TSR_PLAN_COST_QUALITY_H
#define TSR_PLAN_COST_QUALITY_H

#include "plan/cost/candidate.h"

/* What a cache type or a codec costs; half of the 95 % interval, NAN: not known. */
#define TSR_PLAN_QUALITY_CHOICES 16u
#define TSR_PLAN_QUALITY_MAP     33u
struct tsr_plan_quality_choice {
    char     name[100];
    double   kl, half;
    uint64_t context; /* kv: tokens of a sequence that it was measured over */
    double *
        layers; /* kv: [layers] proportions of layers, >= 0; NULL: not measured; owned by the quality */
};

/* What the KL of a plan consists of, as sums of figures.  compensation: what compensated channels take off the weights, at
 * most 0. */
struct tsr_plan_quality_parts {
    double weights, kv, links, sums, compensation, ends;
};

/* What of the KL of a scheme is left with k of 1,024 channels compensated, for ascending k. */
#define TSR_PLAN_QUALITY_KEPT 9u /* with k = 0, of which all is left */
struct tsr_plan_quality_kept {
    uint32_t n; /* 0: the file does not say */
    double   k[TSR_PLAN_QUALITY_KEPT], kept[TSR_PLAN_QUALITY_KEPT], half[TSR_PLAN_QUALITY_KEPT];
};

/* Of indicators that are measured by KL (tessera.indicators/2): omega is in nats per token. */
struct tsr_plan_quality_kl {
    bool                           on;
    double                        *half; /* [layers][candidates], NAN: not known; owned */
    struct tsr_plan_quality_choice kv[TSR_PLAN_QUALITY_CHOICES], link[TSR_PLAN_QUALITY_CHOICES],
        sum[TSR_PLAN_QUALITY_CHOICES], end[TSR_PLAN_QUALITY_CHOICES];
    struct tsr_plan_quality_kept *kept; /* [candidates]; owned */
    uint32_t                      n_kv, n_link, n_sum, n_end, n_map;
    double map_w[TSR_PLAN_QUALITY_MAP], map_kl[TSR_PLAN_QUALITY_MAP]; /* f, from (0, 0) */
    double scatter; /* most that a random plan was off f, of its KL */
};

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
    struct tsr_plan_quality_kl kl;
};

/* From a file tessera.indicators/1 or /2 (docs/formats/indicators.md). Of /2 a candidate takes the figures of its own
 * scheme: the quantizer with the same options, defaults included. Of /1, which is by bits, two candidates of equal
 * bits and different schemes are TSR_E_INPUT. table: "variance", "hessian", ... ; "" or
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
/* Of kl: the KL that a sum w stands for, and the largest sum whose KL is at most `kl`.  [any] */
double tsr_plan_quality_kl_of(const struct tsr_plan_quality *q, double w);
double tsr_plan_quality_sum_of(const struct tsr_plan_quality *q, double kl);
/* Of kl: what a cache type costs at `context` tokens, by the shortest measured context that reaches it; a codec; NULL: not in
 * the file.  [any] */
const struct tsr_plan_quality_choice *tsr_plan_quality_kv(const struct tsr_plan_quality *q,
                                                          const char *kv, uint64_t context);
const struct tsr_plan_quality_choice *tsr_plan_quality_link(const struct tsr_plan_quality *q,
                                                            const char                    *codec);
const struct tsr_plan_quality_choice *tsr_plan_quality_sum(const struct tsr_plan_quality *q,
                                                           const char                    *codec);
/* Of kl: what embedding and head lose if both are packed by the candidate; NULL: not in the file.  [any] */
const struct tsr_plan_quality_choice *tsr_plan_quality_end(const struct tsr_plan_quality   *q,
                                                           const struct tsr_plan_candidate *c);
/* Of kl: the share of a candidate's KL that is left with k of 1,024 channels compensated, on a straight line between the k
 * that were measured, and half of its interval; both may be NULL.  false: k is above all that were, or none was.  [any] */
bool tsr_plan_quality_kept_of(const struct tsr_plan_quality *q, uint64_t candidate, uint32_t k,
                              double *kept, double *half);
/* How much single experts suffer, into s->suffers, before their groups are made; nothing where the file does not say.
 * As above.  [setup] */
tsr_status tsr_plan_quality_order(struct tsr_plan_shape *s, const char *path, const char *table,
                                  struct tsr_err *err);
/* Without a file: weights of the layer times 4^-bits, over the mean layer's at 4 bits; 0 for the
 * original.  A quarter for each bit is the variance of uniform rounding (LLM-PQ, theorem 1). */
tsr_status tsr_plan_quality_prior(struct tsr_plan_quality *q, const struct tsr_plan_shape *s,
                                  const struct tsr_plan_candidates *c, struct tsr_err *err);
/* Whether it knows what a type of the KV cache costs.  [any] */
static inline bool tsr_plan_quality_prior_has(uint32_t kv)
{
    return kv == TSR_F32 || kv == TSR_F16 || kv == TSR_I8;
}
void tsr_plan_quality_free(struct tsr_plan_quality *q); /* zeroed or filled */

/* The sum over layers with candidate i everywhere: the meaning of `at_least: uniform-4`. */
double tsr_plan_quality_uniform(const struct tsr_plan_quality *q, uint64_t candidate);

#endif
