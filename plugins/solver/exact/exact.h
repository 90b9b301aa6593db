/* exact.h - shared by the files of the exact planner (docs/decisions/exact-solver.md).
 *
 * A plan is a path: from (layer 0, no device used) over stages to layer L. A stage's choice of bits matters
 * only through its sums: prefill time, decode time, omega. Boxes of (slowest prefill stage, slowest decode
 * stage) are searched best bound first:
 *   devices.c  pools, and the sets of used devices
 *   model.c    one micro-batch option as rounded tables
 *   relax.c    lower bounds of all stages at once, memory and caps priced; relax_stage.c: the bits they are of
 *   refine.c   finer prices for the stages of a bound's plan, with many candidates
 *   polish.c   plans near those of the bounds, with many candidates
 *   paths.c    shortest paths over stages
 *   columns.c  the stages' sums that can still be part of a better plan
 *   labels.c   the best path over these
 *   search.c   the queue of boxes, multipliers, splits
 *   omega.c    the limit on quality, the least omega of all plans, the least time of prompts
 *   exact.c    the component, feasibility and the answer
 */
#ifndef TSR_EXACT_H
#define TSR_EXACT_H

#include "tessera/draft/lines.h" /* solver.h, too */

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define EX_PRICES 48u        /* most price vectors of a kind in relax.c, */
#define EX_FINER  12u        /* of which refine.c found at most so many */
#define EX_SLOPES 512u       /* most exchanges that prices are quantiles of */
#define EX_SMALL  32u        /* layers times kinds of a small problem: its columns are few */
#define EX_FEW    8u         /* candidates of a layer for which relax.c's prices are fine enough */
#define EX_NEAR   8u         /* candidates of a layer that polish.c tries */
#define EX_BLOCKS 8u         /* freed blocks of memory that an instance keeps for its next solves */
#define EX_NONE   UINT32_MAX /* no such state */

/* A bit candidate that a kind can run for a class. */
struct ex_item {
    uint64_t mem, host; /* of the device; of its host */
    double   pre, dec;
    uint32_t q, pad;
};

/* One micro-batch option. Times are multiples of a power of two that is small enough not to matter and
 * large enough for all sums to be exact; so are the omegas in struct ex. Entries are stored as at most twice what makes
 * a plan cost struct ex's `dearest`: the power of two follows plans that matter, and no cost is above the true one. */
struct ex_model {
    uint64_t        option;
    uint64_t        embed, head; /* bytes of the ends                       */
    double          omega;       /* of the option itself                    */
    double          error;       /* objectives are this far from those of the tables, at most */
    double          a_max;       /* weight of the slowest prefill stage                      */
    uint32_t        forms;       /* decode = max over forms of kap R + c D                   */
    bool            links;       /* some link takes time or adds to omega                    */
    double          kap[2], c_max[2]; /* [forms]                                                  */
    double          in_sum;           /* 1: links count in the sums (steady), 0: they do not      */
    double          f_limit;          /* of the time until all prompts are done; INFINITY: none   */
    bool            unchecked;        /* whether any plan keeps to the limits is not known yet */
    uint64_t        groups;           /* K if the last kind matters for the next link, else 1     */
    struct ex_item *items;            /* [K][C][Q]                                                */
    uint32_t       *n_items;          /* [K][C]                                                   */
    uint64_t       *room;             /* [K] capacity less workspace                              */
    uint64_t       *host;             /* [K] of the host's memory                                 */
    bool           *usable;           /* [K]                                                      */
    double         *end;              /* [K][4] embed_pre, embed_dec, head_pre, head_dec          */
    double         *link;             /* [V][K][K][2] pre, dec                                    */
    void           *block;
};

/* A stage of a plan with the sums that its bits were chosen for; extras of the ends included, the link
 * not.  link: the codec of the link before the stage. */
struct ex_stage {
    uint32_t k, s, e, link;
    double   pre, dec, w;
};

/* Multipliers are shares: of a_max among the prefill times of the pools' stages, a stage by what it
 * takes, of c_max among their decode times; tau mixes the two forms, nu prices omega, lam the time until all
 * prompts are done.  Shares of prefill sum to 1 + lam at most. */
struct ex_node {
    double   bound;
    double   p_lo, p_hi, d_lo, d_hi;
    double   tau, nu, lam;
    double   delta; /* how far above its bound a node is searched at once, relative */
    uint64_t limit; /* labels that may be spent on it                               */
    uint32_t model;
    uint32_t idle;    /* cuts one after the other that hardly raised the bound */
    uint64_t cut;     /* number of the cut that made it, 0: none */
    bool     settled; /* its multipliers have been climbed */
    bool     waits;   /* a model without a box yet, by a bound of the host */
    double   share[]; /* [2][G] */
};

/* What a node's multipliers make of the objective: a lower bound of every plan in the box is
 * konst + sum over stages of a pre + b dec + theta w + links. */
struct ex_weights {
    double  p_lo, p_hi, d_lo, d_hi;
    double  kap, c, theta, konst;
    double  link_pre, link_dec; /* of a ms of a link */
    double *a, *b;              /* [K] */
};

struct ex_price {
    double mem, pre, dec;
};

/* Another item for a layer: what it adds. */
struct ex_move {
    double   pre, dec, w;
    uint32_t l, item;
};

/* An exchange of item j for item i of a layer, and of `times` - 1 others that are like it. */
struct ex_pair {
    uint16_t l, times;
    uint8_t  i, j;
};

/* The exchanges of a kind that price an axis: `all` with their times. option: of the model, plus 1; 0: none yet. */
struct ex_pairs {
    uint64_t option, n, all;
};

struct ex_label {
    uint64_t mem, host;
    double   pre, dec, w;
};

/* Columns of a segment are columns first .. first+n in order of their weighted cost. */
struct ex_segment {
    uint32_t k, s, e, pad;
    uint64_t first, n;
};

struct ex_columns {
    uint64_t           n, room;
    double            *pre, *dec, *w, *cost; /* one block: pre */
    uint64_t           n_seg, seg_room;
    struct ex_segment *seg;
};

struct ex_path {
    double   sum, r, p, d, w, f, priced; /* priced: konst-free value under the node's weights */
    uint32_t parent, col, seg, next, link, pad;
};

/* The stages, bytes and items of a plan that polish.c changes. */
struct ex_near {
    struct ex_stage *st;         /* [L] */
    uint64_t        *mem, *host; /* [L] of the stages */
    uint32_t        *item;       /* [L] index of the layer's item */
    uint32_t        *stage;      /* [L] of the layer */
    uint32_t        *list;       /* [L][EX_NEAR] items that are tried */
};

/* What a search minimizes: the objective, the sum of omega, or the time until all prompts are done. */
enum ex_aim { EX_OBJECTIVE, EX_OMEGA, EX_FIRST };

/* Where a plan suggests to split: its slowest stage, and the sums that the multipliers weighted. */
struct ex_view {
    double p, p_mean, d, d_mean, r;
};

struct ex {
    const struct tsr_host            *host;
    void                            **blocks; /* [EX_BLOCKS] of the component, for ex_new() */
    const struct tsr_solver_instance *in;
    uint64_t                          L, K, Q, C, V;
    const uint64_t                   *host_bytes; /* [C][Q]; NULL: no layer has any there */
    bool small, many; /* L K is at most EX_SMALL; candidates: polish.c and refine.c are worth it */
    /* devices: pools, of which kinds take some; without pools each kind has one of its own */
    uint64_t  G;
    uint64_t *pool, *takes;     /* [K] */
    uint64_t *have;             /* [G] at most what L stages take */
    uint64_t  n_states;         /* state 0: none used */
    uint32_t *next;             /* [n_states][K] */
    bool   *complete, *reached; /* [n_states] a plan may end here; by devices one after the other */
    bool   *leads, *trails;     /* [K] only ever the first stage; only ever the last */
    double *omega;              /* [K][L][Q] rounded; without kind_omega [L][Q] */
    uint64_t    omega_kind;     /* entries from one kind to the next, or 0 */
    double     *link_omega;     /* [V][L] rounded; NULL: none */
    double      w_limit, w_scale; /* INFINITY: none; a typical sum of omega */
    double      f_limit;          /* max_first_ms with its tolerance; INFINITY: none */
    double      w_unit;           /* that the omegas are multiples of */
    double      theta;
    double      dearest; /* plans that cost more are of no interest; INFINITY: all are */
    enum ex_aim aim;
    struct tsr_solver_line *lines;  /* [n_options] the host's; NULL: none */
    double                  enough; /* stop at a plan as good as this */
    struct ex_model        *models;
    uint64_t                n_models;
    /* incumbent */
    double           best, target; /* target: only plans below it are looked for */
    uint64_t         best_model, n_best;
    struct ex_stage *stages, *trial; /* [L] */
    uint32_t        *bits, *fit; /* [L] of the incumbent; of the stages that ex_relax_fit() made */
    bool             has_bits;
    double           closed; /* least bound of the closed boxes */
    const char      *why;    /* the last model without a plan has none; NULL: none was found so */
    bool (*keeps_limits)(struct ex *x, uint64_t model,
                         const char **why); /* of an unchecked model */
    /* queue: a binary heap */
    struct ex_node **heap;
    uint64_t         n_heap, heap_room;
    /* tables of one pass; a segment is k, s, e */
    struct ex_weights w;
    double           *cost, *around;          /* [K][L][L+1] of the stage; of all but the stage */
    uint32_t         *reach;                  /* [K][L] largest e; 0: none                   */
    bool             *last;                   /* [K][L] e = L is possible, too               */
    double           *fwd, *bwd, *into, *way; /* [n][G][L+1], same, [n][K][L], [G][K] */
    double *bwd0, *bwdw, *bwdf; /* potentials without multipliers; of omega; of prefill times */
    struct ex_price  *price;    /* [K][EX_PRICES]                              */
    uint32_t         *n_price;  /* [K]                                         */
    struct ex_price  *finer;    /* [K][EX_FINER] a ring */
    uint32_t         *n_finer;  /* [K] put there; from EX_FINER on the ring is full */
    double           *prefix;   /* [K][EX_PRICES][L+1]                         */
    double           *priced;   /* scratch: [C][Q][EX_PRICES]                  */
    uint64_t          n_slopes; /* at most EX_SLOPES                           */
    struct ex_pairs  *pairs;    /* [K][3]                                      */
    struct ex_pair   *pair;     /* [K][3][n_slopes] in order of their last worth */
    double           *slopes, *most;      /* scratch: [3][n_slopes], [3][L+1]            */
    double           *least;              /* [K][3][L] least bytes, prefill, decode      */
    uint64_t          least_of, reach_of; /* of the model of this option, plus 1; reach and last */
    double            reach_hi[2];        /* and the caps that these are of */
    double           *bundle;             /* climb.c's */
    void             *block;              /* the tables' memory */
    bool              fresh;           /* ex_climb() left cost and fwd at the node's multipliers */
    struct ex_node   *start, *climbed; /* of the last root, its multipliers; of the last climb */
    struct ex_view    view;            /* of that climb */
    struct ex_near    near[2];         /* polish.c's, like the next two */
    struct ex_move   *near_move;
    uint64_t          polished;
    struct ex_label  *lab[2];
    struct ex_columns cols;
    struct ex_path   *paths;
    uint64_t          n_paths, path_room, lab_room[2];
    uint32_t         *head;   /* [n][G][L+1] */
    uint64_t         *seg_of; /* [K][L+1] first segment of (k, s) */
    /* limits */
    uint64_t   cuts, gained; /* so many; the last one after which a half had a higher bound */
    uint64_t   end_us, ticks, nodes, all_labels, all_paths;
    bool       late, kept; /* kept: some plan keeps to the limits */
    tsr_status status;     /* first failure */
};

#define EX_SEG(x, k, s, e)    (((uint64_t)(k) * (x)->L + (s)) * ((x)->L + 1) + (e))
#define EX_AT(x, m, st, g, e) (((uint64_t)(st) * (m)->groups + (g)) * ((x)->L + 1) + (e))

/* The power of two whose multiples up to `total` have exact sums. */
double ex_unit(double total);
/* The nearest multiple; of a value above twice the cap, that of twice the cap. */
double ex_snap(double v, double cap, double unit);

/* Memory from the host, of 64 KiB and more also again; the size is kept in front. ex_new() zeroes; NULL sets x->status. */
void *ex_new(struct ex *x, uint64_t n, uint64_t size);
void  ex_free(struct ex *x, void *p);
void  ex_release(const struct tsr_host *host, void **blocks);
/* Room for at least n entries, contents kept; false: out of memory. */
bool ex_grow(struct ex *x, void **p, uint64_t *room, uint64_t n, uint64_t size);
/* True when the search must stop: deadline, user, or an earlier failure. */
bool ex_stop(struct ex *x);

/* Pools first, then the sets of their devices, of which there must not be too many. */
tsr_status ex_pools_init(struct ex *x);
tsr_status ex_devices_init(struct ex *x);
/* False: stages that use every device are impossible, and all must be used. */
bool ex_can_complete(const struct ex *x);
bool ex_model_init(struct ex *x, struct ex_model *m, uint64_t option);
void ex_model_free(struct ex *x, struct ex_model *m);
/* Seconds-free objective of sums over stages: P and D the slowest. */
double ex_objective(const struct ex *x, const struct ex_model *m, double sum, double r, double p,
                    double d);
/* Objective of stages, links included; INFINITY if omega or the prompts' time is above its limit. */
double ex_value(const struct ex *x, const struct ex_model *m, const struct ex_stage *st,
                uint64_t n);

/* The omegas of a layer's candidates on a kind. */
static inline const double *ex_omega_of(const struct ex *x, uint64_t k, uint64_t l)
{
    return x->omega + k * x->omega_kind + l * x->Q;
}

/* How many prices of a kind are relax.c's own: they come first. */
static inline uint32_t ex_coarse(const struct ex *x, uint64_t k)
{
    return x->n_price[k] - (x->n_finer[k] < EX_FINER ? x->n_finer[k] : EX_FINER);
}

/* Bit candidates of a layer on a kind, and what one costs at a price. */
static inline const struct ex_item *ex_items_of(const struct ex *x, const struct ex_model *m,
                                                uint64_t k, uint64_t l, uint32_t *n)
{
    uint64_t c = k * x->C + x->in->layer_class[l];
    *n = m->n_items[c];
    return m->items + c * x->Q;
}
static inline double ex_item_cost(const struct ex *x, uint64_t k, uint64_t l,
                                  const struct ex_item *it, const struct ex_price *p)
{
    return (x->w.a[k] + p->pre) * it->pre + (x->w.b[k] + p->dec) * it->dec +
           p->mem * (double)it->mem + x->w.theta * ex_omega_of(x, k, l)[it->q];
}

/* Least bytes and times of the layers, for ex_relax(). */
void ex_least(struct ex *x, const struct ex_model *m);
/* Fills cost, reach and last for the weights: lower bounds of all stages. */
void ex_relax(struct ex *x, const struct ex_model *m);
/* The price that bounds a segment best, an index. */
uint32_t ex_relax_price(const struct ex *x, const struct ex_model *m, uint64_t k, uint64_t s,
                        uint64_t e);
/* The part of the bound of a stage at a price that does not depend on its layers. */
double ex_relax_constant(const struct ex *x, const struct ex_model *m, const struct ex_price *p,
                         uint64_t k, uint64_t s, uint64_t e);
/* Looks for a price that bounds the stage better by more than `worth`; true: the next ex_relax() has it. */
bool ex_refine(struct ex *x, const struct ex_model *m, const struct ex_stage *st, double worth);
/* Sums of the stage that the bound of a segment represents. */
void ex_relax_stage(const struct ex *x, const struct ex_model *m, struct ex_stage *st);

/* Sums of bits that fit the memory, near those of the bound; false: there are none at hand. */
bool ex_relax_fit(const struct ex *x, const struct ex_model *m, struct ex_stage *st);

/* Shortest paths over x->cost; returns the least sum, INFINITY: none. */
double   ex_forward(struct ex *x, const struct ex_model *m);
void     ex_backward(struct ex *x, const struct ex_model *m, double *to);
void     ex_around(struct ex *x, const struct ex_model *m);
uint64_t ex_walk(struct ex *x, const struct ex_model *m, struct ex_stage *st);
/* Weighted cost of the link after layer l between two kinds, with the codec that is cheapest within the
 * box, which goes to *codec unless that is NULL; INFINITY: no codec is. */
double ex_link(const struct ex *x, const struct ex_model *m, uint64_t l, uint64_t from, uint64_t to,
               uint32_t *codec);
/* Prefill and decode ms of a link, and what it adds to omega after layer l. */
static inline const double *ex_link_ms(const struct ex *x, const struct ex_model *m, uint64_t codec,
                                       uint64_t from, uint64_t to)
{
    return m->link + ((codec * x->K + from) * x->K + to) * 2;
}
static inline double ex_link_omega(const struct ex *x, uint64_t codec, uint64_t l)
{
    return x->link_omega ? x->link_omega[codec * x->L + l] : 0;
}

/* Every stage that may be part of a plan of at most `most` (under the weights, without konst).  False: more
 * than `limit` labels would be needed. */
bool ex_columns_build(struct ex *x, const struct ex_model *m, double most, uint64_t limit);
/* x->cost from the columns, whose cost is computed from the weights. */
void ex_columns_price(struct ex *x, const struct ex_model *m);
/* Drops columns that cannot be part of a plan of at most `most`; x->around is up to date. */
void ex_columns_filter(struct ex *x, double most);
/* Columns of each segment in order of cost, as ex_labels_run() requires. */
void ex_columns_sort(struct ex *x);
void ex_columns_stage(const struct ex *x,
                      struct ex_stage *st); /* that the cost of a segment is from */
/* Bits whose sums are those of the stage; false: out of memory. */
bool ex_columns_bits(struct ex *x, const struct ex_model *m, const struct ex_stage *st,
                     uint32_t *bits);

/* Every path over the columns that can be below min(x->target, most); better ones become the incumbent.  False: more than `limit` labels would be needed. */
bool ex_labels_run(struct ex *x, const struct ex_model *m, double most, uint64_t limit);

void ex_weights_set(struct ex *x, const struct ex_model *m, const struct ex_node *n);
/* Raises the node's bound with at most `steps` evaluations, up to `most`: over bounds of stages, or
 * over columns (then every shortest path is a plan, and columns that are out are dropped).  Returns
 * the bound, INFINITY: the box is empty.  The node keeps the best multipliers; v is of these. */
double   ex_climb(struct ex *x, struct ex_node *n, unsigned steps, double most, bool columns,
                  struct ex_view *v);
uint64_t ex_bundle_size(uint64_t G); /* doubles */

/* Looks for better plans near the stages of a bound's plan, whose codecs stay; x->w and x->price are those of
 * the bound.  most: about how many sums of stages may be looked at. */
void ex_polish(struct ex *x, const struct ex_model *m, const struct ex_stage *st, uint64_t n,
               uint64_t most);

/* x->omega and its limit, for x->dearest; false without memory. */
bool ex_omega_init(struct ex *x);
/* A sum of omega (EX_OMEGA) or a time until all prompts are done (EX_FIRST) of a plan of the model within
 * the limit, or INFINITY: the model has no plan.  A plan that is found becomes the incumbent of x if it keeps
 * to the other limit.  EX_FIRST keeps to that of omega.  NaN: it took too long. */
double ex_aim_within(struct ex *x, uint64_t model, enum ex_aim aim);
/* Whether a plan of the model keeps to the limits (true also where it took too long), else *why says which is too low. */
bool ex_keeps_limits(struct ex *x, uint64_t model, const char **why);

/* Takes the stages as incumbent if they are better; bits: [L], NULL where only sums are known. */
void ex_incumbent(struct ex *x, uint64_t model, const struct ex_stage *st, uint64_t n,
                  const uint32_t *bits);
/* Bits of a stage of the incumbent, given or from its sums; false as ex_columns_bits(). */
bool ex_incumbent_bits(struct ex *x, const struct ex_stage *st, uint32_t *bits);
/* Runs the search over all models; results in x->best and x->closed.  Tables of a pass, for x->models. */
void ex_search(struct ex *x);
bool ex_tables_init(struct ex *x);
void ex_tables_free(struct ex *x);
void ex_search_free(struct ex *x);
/* How far the rounded tables may be from those of the instance, in ms of the objective; what every plan is proved to be above. */
double ex_error_of(const struct ex *x);
double ex_proved(const struct ex *x);
/* The gap that is asked for, as far as sums of 53 bits can prove it. */
double ex_most_gap(const struct tsr_solver_instance *in);
/* The incumbent with its bound, if any; false without memory. */
bool ex_answer(struct ex *x, struct tsr_solver_solution *out);
void ex_put_infeasible(struct ex *x, struct tsr_solver_solution *out, const char *why);

#endif
