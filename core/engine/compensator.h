/* engine/compensator.h - the residuals of an engine and what its compensation works with; shared by
 * compensate_load.c and compensate.c. */
#ifndef TSR_ENGINE_COMPENSATOR_H
#define TSR_ENGINE_COMPENSATOR_H

#include "engine/internal.h"

/* Linears that share an input. */
struct tsr_engine_comp_site {
    uint32_t  k;        /* of 1024; 0: nothing is selected */
    uint64_t  channels; /* of the input */
    uint64_t  count;    /* channels that are selected */
    bool      there;    /* linears with residuals, of which a rank may have no part */
    uint64_t  n;        /* those that it has a part of */
    uint64_t  at, part; /* of o and down on several ranks: outputs [at, at + part) are this one's */
    void     *residual[TSR_COMPENSATE_LINEARS];
    uint32_t  which[TSR_COMPENSATE_LINEARS]; /* place among the site's linears */
    float     floors[TSR_COMPENSATE_BUCKETS];
    uint32_t *fixed; /* a static selection */
};

struct tsr_engine_compensator {
    struct tsr_engine_compensate            use;
    struct tsr_engine_device               *dev; /* the engine's, or its fallback: with copies */
    const struct tsr_backend_compensate_v1 *table;
    struct tsr_engine_comp_site (*site)[TSR_MODEL_SITES]; /* [layers] */
    bool            any;                                  /* of them there are some */
    unsigned char **copies;                               /* residuals that a rank had to copy */
    uint64_t        n_copies, cap_copies;

    /* of a chunk */
    uint64_t          n;    /* tokens that are compensated */
    bool              full; /* all of them */
    uint32_t         *at;   /* their rows, [chunk] */
    struct tsr_tensor rows; /* the same on the device */
    struct tsr_tensor list; /* [most, 1 + room] */
    uint64_t          room;
    uint64_t          most; /* compensated tokens of a chunk that there is memory for */

    /* host memory: inputs of compensated tokens, lists, room for sorting */
    float    *x;
    uint32_t *lists, *exact, *scratch;
    uint64_t  widest;
    /* one of several ranks: whole inputs; adds to its part of the outputs */
    struct tsr_tensor whole, sum;

    struct tsr_engine_compensated done;
};

/* Memory for chunks of n compensated tokens; discards the old content. */
tsr_status tsr_engine_compensate_room(struct tsr_engine *e, uint64_t n, struct tsr_err *err);

/* The channels of a static selection, s->count of them; nothing to do for another. */
struct tsr_compensate_site_profile;
tsr_status tsr_engine_compensate_fix(struct tsr_engine_compensator            *c,
                                     const struct tsr_compensate_site_profile *p,
                                     struct tsr_engine_comp_site *s, struct tsr_err *err);

#endif
