/* engine/compensator.h - the residuals of an engine and what its compensation works with; shared by the files
 * compensate*.c. */
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
    uint32_t  blocks;   /* thread blocks; 0: the device chooses */
    uint64_t  number;   /* of the site among those of all layers, for a random selection */
    void     *residual[TSR_COMPENSATE_LINEARS];
    uint32_t  which[TSR_COMPENSATE_LINEARS]; /* place among the site's linears */
    float     floors[TSR_COMPENSATE_BUCKETS];
    uint32_t *fixed;        /* a static selection: [1 + count] */
    struct tsr_tensor held; /* it, for each sequence, on the device that selects; uploaded once */
};

/* Rows of an input that are compensated. */
struct tsr_engine_comp_rows {
    uint64_t        n;
    bool            full; /* all of them */
    const uint32_t *at;   /* [n], ascending */
    const uint32_t
        *tokens; /* of an expert: which token of the chunk a row is; NULL: that of its number */
    struct tsr_tensor on; /* `at` on the device; not if full */
};

/* Where sites are compensated, with the tensors that it needs there. */
struct tsr_engine_comp_place {
    struct tsr_engine_device *data; /* has inputs and outputs; NULL: the engine has no such site */
    struct tsr_engine_device *dev;  /* selects and adds: `data`, or its fallback, with copies */
    const struct tsr_backend_compensate_v1 *table;
    struct tsr_tensor                       rows;        /* [1, chunk] */
    struct tsr_tensor                       expert_rows; /* [1, chunk * used] */
    struct tsr_tensor                       list;        /* [most, 1 + room] */
    struct tsr_tensor                       whole,
        sum; /* one of several ranks: inputs; adds to its part of the outputs */
};

struct tsr_engine_compensator {
    struct tsr_engine_compensate  use;
    struct tsr_engine_comp_place  own, host; /* host: of chosen experts that e->host runs */
    struct tsr_engine_comp_place *here;      /* of the site that runs */
    struct tsr_engine_comp_site **site;      /* [layers][hparams.sites] */
    bool                          any;       /* of them there are some */
    unsigned char               **copies;    /* residuals that a rank had to copy */
    uint64_t                      n_copies, cap_copies;

    /* of a chunk */
    struct tsr_engine_comp_rows now;   /* of the input that runs */
    struct tsr_engine_comp_rows chunk; /* of an input with a row for each token */
    uint32_t                   *at;    /* [chunk] */
    /* of the experts of a layer: rows of each among its own, one expert's after the other's; NULL: no experts */
    uint32_t *expert_at;  /* [chunk * used] */
    uint64_t *expert_end; /* [experts] */
    uint8_t  *taken;      /* [chunk]: 1: a token is compensated */
    uint64_t  room;       /* channels of a list */
    uint64_t  most;       /* compensated tokens of a chunk that there is memory for */

    /* host memory: inputs of compensated tokens, lists, room for sorting */
    float    *x;
    uint32_t *lists, *exact, *scratch;
    uint64_t  widest;

    struct tsr_engine_compensated done;
};

/* Where a site is compensated. */
static inline struct tsr_engine_comp_place *tsr_engine_comp_place(struct tsr_engine *e,
                                                                  uint64_t           layer,
                                                                  enum tsr_site      site)
{
    return tsr_engine_site_device(e, layer, site) == e->dev ? &e->comp->own : &e->comp->host;
}

/* One of several ranks has all of a chosen expert, and of its site. */
static inline bool tsr_engine_comp_is_whole(const struct tsr_engine *e, enum tsr_site site)
{
    return e->share.whole_experts && site >= TSR_MODEL_SITE_EXPERTS;
}

/* compensate_select.c: a static selection to the device, again after each change; nothing to do for another. */
tsr_status tsr_engine_compensate_hold(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                      struct tsr_err *err);
/* The lists of the site that runs: [tokens, 1 + count]. */
struct tsr_tensor tsr_engine_comp_lists(const struct tsr_engine_compensator *c,
                                        const struct tsr_engine_comp_site   *s);

/* The compensated rows of the site that runs, from or to the device that has them, dense in host memory;
 * their channels from x, its rows `rows` (NULL: all); what these add to the outputs. */
tsr_status tsr_engine_comp_down(struct tsr_engine *e, const struct tsr_tensor *t, float *to,
                                struct tsr_err *err);
tsr_status tsr_engine_comp_select(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                                  const struct tsr_tensor *x, const struct tsr_tensor *rows,
                                  struct tsr_err *err);
tsr_status tsr_engine_comp_add(struct tsr_engine_compensator     *c,
                               const struct tsr_engine_comp_site *s, const struct tsr_tensor *x,
                               const struct tsr_tensor *rows, const struct tsr_tensor *const *outs,
                               struct tsr_err *err);

/* The whole of that, of a site whose whole input and outputs are here. */
tsr_status tsr_engine_comp_run(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                               const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                               struct tsr_err *err);

/* Memory for chunks of n compensated tokens; discards the old content. */
tsr_status tsr_engine_compensate_room(struct tsr_engine *e, uint64_t n, struct tsr_err *err);

/* k of a site under `each`, or under the k of its kind; the channels of a static selection, s->count of them; nothing to do for another. */
struct tsr_compensate_site_profile;
tsr_status tsr_engine_compensate_fix(struct tsr_engine_compensator            *c,
                                     const struct tsr_compensate_site_profile *p,
                                     struct tsr_engine_comp_site *s, struct tsr_err *err);

#endif
