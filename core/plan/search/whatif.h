/* plan/search/whatif.h - the same problem with one change, solved again: what is missing, what fits, the
 * gain from more resources. Nothing is estimated from the plan; every result is a solution. */
#ifndef TSR_PLAN_SEARCH_WHATIF_H
#define TSR_PLAN_SEARCH_WHATIF_H

#include "plan/search/search.h"

/* A problem that may be changed and is released by tsr_plan_variant_free(); it borrows from p. */
struct tsr_plan_variant {
    struct tsr_plan_problem    p;
    double                    *omega;            /* owned */
    struct tsr_plan_cluster   *cluster;          /* with links of its own; owned, NULL: p's */
    struct tsr_plan_candidates candidates, ends; /* its own; owned, empty: p's */
    struct tsr_plan_quality    quality;          /* of its own candidates; owned */
    bool                       codecs;           /* p has codecs of its own */
    bool                       lossy_sums;       /* of the shape, before */
};
tsr_status tsr_plan_variant_make(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 struct tsr_err *err);
/* The same with candidate c alone, and no limit on omega. */
tsr_status tsr_plan_variant_only(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 uint64_t c, struct tsr_err *err);
/* The same with one more candidate of `bits`: the quantizer of the narrowest one with its other options, where it can, else
 * rtn. *known: what it loses is known; else no candidate loses anything, and omega has no limit. TSR_E_INPUT where there is no
 * such candidate, or one of p is as narrow; v is then empty.  [setup] */
tsr_status tsr_plan_variant_narrower(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                     uint32_t bits, bool *known, struct tsr_err *err);
/* The same with embedding and head packed by a scheme, "rtn:bits=8".  *known: what that loses is known; else it counts
 * nothing.  TSR_E_INPUT where it cannot pack them; v is then empty.  [setup] */
tsr_status tsr_plan_variant_ends(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 const char *scheme, bool *known, struct tsr_err *err);
void       tsr_plan_variant_free(struct tsr_plan_variant *v);
/* Multiplies the rate of all links between nodes, or of those inside of nodes.  [setup] */
tsr_status tsr_plan_variant_links(struct tsr_plan_variant *v, bool inside, double times,
                                  struct tsr_err *err);
/* Lets links between stages, or sums inside of them, have a codec: with indicators by KL in addition to theirs, else in their
 * place.  TSR_E_INPUT where there is no such codec, or no figure of it. Until it is freed the shape is that of the
 * variant.  [setup] */
tsr_status tsr_plan_variant_codec(struct tsr_plan_variant *v, bool sum, const char *codec,
                                  struct tsr_err *err);

/* Bytes that each device of the profiles of two groups, which may be one, would have to have more for a plan to exist, to
 * 1 MiB; UINT64_MAX: no number helps. */
tsr_status tsr_plan_whatif_short(const struct tsr_plan_problem *p,
                                 const struct tsr_plugin_spec *solver, uint64_t group,
                                 uint64_t also, uint64_t *bytes, struct tsr_err *err);

/* That number for each profile in short_of [groups], and the profile whose devices lack the least part of the memory that they
 * have: UINT64_MAX: no number helps.  A small device that would have to be many times as large is not what one would change. */
tsr_status tsr_plan_whatif_least_short(const struct tsr_plan_problem *p,
                                       const struct tsr_plugin_spec *solver, uint64_t *short_of,
                                       uint64_t *group, uint64_t *bytes, struct tsr_err *err);

/* A scheme that makes an infeasible problem feasible. */
struct tsr_plan_remedy_scheme {
    char name[40]; /* of the candidate; "": none */
    bool known;    /* what it loses is known, and within the limit; else the limit does not hold */
};

/* Changes that make an infeasible problem feasible, each found by solving; 0, "" or UINT64_MAX: none. */
struct tsr_plan_remedies {
    uint64_t  group, bytes; /* the profile that lacks the least part: each of its devices so much */
    uint64_t *short_of;     /* [groups] bytes for each device; owned */
    uint64_t *devices;      /* [groups] more devices in the group, at most 8; owned */
    uint64_t  batch, prompt; /* the most that fit */
    bool      kv8;           /* an int8 cache would do */
    uint64_t  chunk;         /* tokens of the largest chunk with which prompts fit */
    struct tsr_plan_remedy_scheme
        narrow, /* one more candidate, of fewer bits than all others; the widest that is enough */
        ends;   /* of embedding and head, in 8 bits */
    /* two of the changes that cost no quality or little, where neither does alone; the cheapest pair: no int8 cache if
     * that is not needed */
    struct tsr_plan_pair {
        uint64_t batch, chunk; /* requests at once; tokens; 0: as they are */
        bool     kv8;
        double   max_omega; /* NAN: as it is */
        uint64_t
            bytes; /* more on each device of the profiles of these groups; UINT64_MAX: as they are */
        uint64_t group, also; /* the same group: of one profile, with a higher limit */
        struct tsr_plan_remedy_scheme narrow,
            ends; /* with one of those above, or both; only where there is no other pair */
    } pair;
    double max_omega;    /* the smallest limit with a plan; NAN: none, or there was no limit */
    double max_first_ms; /* the same of the limit until prompts are done */
};
tsr_status tsr_plan_whatif_remedies(struct tsr_plan_remedies *r, const struct tsr_plan_problem *p,
                                    const struct tsr_plugin_spec *solver, struct tsr_err *err);
void       tsr_plan_remedies_free(struct tsr_plan_remedies *r);

/* The largest concurrent batch, and the longest prompt, that the stages of a plan hold unchanged;
 * arithmetic on its memory. */
tsr_status tsr_plan_whatif_largest(const struct tsr_plan_problem *p,
                                   const struct tsr_plan_outcome *o, uint64_t *batch,
                                   uint64_t *prompt, struct tsr_err *err);

#endif
