/* int4_bf16.h - inside the codec int4_bf16: the sites that were calibrated. */
#ifndef TSR_INT4_BF16_H
#define TSR_INT4_BF16_H

#include "../rows.h"
#include "encode.h"

#define NAME        "int4_bf16"
#define MAX_SITES   65536u
#define MAX_SOURCES 4096u

enum { FEATURES_SELECTED, FEATURES_RANDOM, FEATURES_NONE };

struct i4_options {
    int64_t bits, features, one_in, seed;
    double  gamma;
};

/* One rank's features at a site. Until freeze(), low and high are the moving ends; then range is 2 *
 * max(-low, high), and the other members derive from it.
 *
 * Codes have cols - k places. Place i holds feature i. If feature i travels as BF16, the place holds one
 * of the last k features that does not (i4_site.hole, i4_site.tail), so that a row is coded in place. */
struct i4_source {
    double *low, *high;  /* [cols] or NULL */
    float  *range;       /* [cols] or NULL */
    float  *scale, *inv; /* [cols - k] by place */
    float  *tail_inv;    /* [holes] as inv has them */
    float  *tail_scale;
};

struct i4_site {
    uint64_t          cols, k, holes;
    uint32_t         *chosen;      /* [k] features in BF16, ascending */
    uint32_t         *hole, *tail; /* [holes] place, and the feature stored there */
    uint32_t         *place;       /* [cols - k] the feature at each place */
    struct i4_source *source;      /* [sources]; range NULL: never seen */
    uint32_t          sources;
};

struct i4 {
    const struct tsr_host   *host;
    const struct tsr_encode *encode;
    uint32_t                 bits;
    uint64_t                 one_in; /* 0: no feature in BF16 */
    uint32_t                 features;
    uint64_t                 seed;
    double                   gamma;
    struct i4_site         **site; /* [sites], NULL: never seen */
    uint32_t                 sites;
    int                      frozen;
};

/* Features in BF16 of a row of cols. */
static inline uint64_t i4_kept(const struct i4 *c, uint64_t cols)
{
    return c->one_in ? cols / c->one_in : 0;
}

/* calibrate.c.  Zeroed memory of n elements, or NULL; and back. */
void *i4_new(const struct i4 *c, uint64_t n, uint64_t size);
void  i4_drop(const struct i4 *c, void *p, uint64_t n, uint64_t size);
/* The site, made where there is none, with room for that source. */
tsr_status i4_site_make(struct i4 *c, uint32_t site, uint32_t source, uint64_t cols,
                        struct i4_site **out, struct tsr_err *err);
void       i4_sites_free(struct i4 *c);
/* Computes places, scales and reciprocals of a site whose ranges and chosen features are set. */
tsr_status i4_site_finish(struct i4 *c, struct i4_site *s, struct tsr_err *err);

tsr_status i4_observe(void *self, const struct tsr_codec_job *job, struct tsr_err *err);
tsr_status i4_freeze(void *self, struct tsr_err *err);

/* state.c */
uint64_t   i4_state_bytes(const void *self);
tsr_status i4_save(const void *self, void *state, struct tsr_err *err);
tsr_status i4_load(void *self, const void *state, uint64_t bytes, struct tsr_err *err);

#endif
