/* plan/search/build_internal.h - shared by build.c (structure) and build_options.c (times and sizes of
 * micro-batches). */
#ifndef TSR_PLAN_SEARCH_BUILD_INTERNAL_H
#define TSR_PLAN_SEARCH_BUILD_INTERNAL_H

#include "plan/cost/compensation.h"
#include "plan/search/build.h"

struct tsr_plan_build_pool {
    struct tsr_plan_build_pool *next;
    void                       *data;
};

/* Bytes of the first and the last stage under an option, beyond workspace_bytes. */
struct tsr_plan_build_ends {
    uint64_t embed, head;
    bool     alone; /* of plans with one stage */
};

/* Zeroed memory that lives as long as the build; NULL when out of memory. */
void *tsr_plan_build_alloc(struct tsr_plan_built *b, uint64_t n, uint64_t size);

/* order of the whole, for a cluster whose order is fixed; kinds are made. */
tsr_status tsr_plan_build_order(struct tsr_plan_built *b, struct tsr_err *err);
/* kind_omega, link_omega and n_links of the whole. */
tsr_status tsr_plan_build_codecs(struct tsr_plan_built *b, struct tsr_err *err);

/* Tokens of a prompt that a prefill micro-batch takes at once.  The paper's form has whole prompts. */
uint64_t tsr_plan_build_piece(const struct tsr_plan_problem *p, uint64_t size);
/* Jobs of a prefill micro-batch of so many requests: its prompts over the longest chunk, by the device and the candidate of
 * the problem with the fewest, one device alone and nothing on its CPU; 1: they go whole.  [any] */
tsr_status tsr_plan_build_jobs(const struct tsr_plan_problem *p, uint64_t size, double *jobs,
                               struct tsr_err *err);
/* items of the build, and the number and the names of bit candidates of the whole. */
tsr_status tsr_plan_build_items(struct tsr_plan_built *b, struct tsr_err *err);
/* Meshes that represent two different devices of kinds. */
void tsr_plan_build_pair(const struct tsr_plan_built *b, uint64_t from, uint64_t to,
                         struct tsr_plan_mesh *x, struct tsr_plan_mesh *y);
/* The way back of a micro-batch's rows from a kind to a head on the first stage, as the build counts it (build_back.c).  [setup] */
tsr_status tsr_plan_build_back(const struct tsr_plan_built *b, uint64_t kind, enum tsr_phase phase,
                               uint64_t size, double *ms, struct tsr_err *err);
/* no_first and no_last of all kinds, and apart: which stages their devices can be.  [setup] */
tsr_status tsr_plan_build_leads(struct tsr_plan_built *b, struct tsr_err *err);
/* layer_bytes of the whole and of kinds, and their ratios; counts: as below. */
tsr_status tsr_plan_build_bytes(struct tsr_plan_built *b, const uint32_t *counts,
                                struct tsr_err *err);
/* The capacities of the whole's kinds, and its workspaces, by the ratios and by what layers take more; ends: [options]. */
void tsr_plan_build_scale(struct tsr_plan_built *b, const struct tsr_plan_build_ends *ends);
/* What compensation of a class of layers takes under an item on a kind. */
tsr_status tsr_plan_build_compensation(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                                       const struct tsr_plan_item   *item,
                                       struct tsr_plan_compensation *c, struct tsr_err *err);
/* Bytes of the work memory of the largest k anywhere on a kind, for prefill micro-batches of so many requests.  Scales are
 * counted with layers. */
tsr_status tsr_plan_build_compensation_work(const struct tsr_plan_built *b, uint64_t kind,
                                            uint64_t prefill_mb, uint64_t *bytes,
                                            struct tsr_err *err);
/* host_bytes of the whole, and host_capacity_bytes of its kinds, where a stage may have too much there.  counts: as below. */
tsr_status tsr_plan_build_host(struct tsr_plan_built *b, const uint32_t *counts,
                               struct tsr_err *err);

/* whole.options: all pairs of micro-batch sizes.  counts: [classes][shape classes]. */
tsr_status tsr_plan_build_options(struct tsr_plan_built *b, const uint32_t *counts,
                                  struct tsr_err *err);
/* workspace_bytes of the options; *ends [options]; *shared: saved where one stage holds both. */
tsr_status tsr_plan_build_ends(struct tsr_plan_built *b, struct tsr_plan_build_ends **ends,
                               uint64_t *shared, struct tsr_err *err);

/* Of instances of the whole batch, see build_rounds.c: tokens; the requests of the last decode micro-batch of size dec, 0: it is
 * full; decode times v, [n], as means of all rounds, where those of that micro-batch are `rest`, NULL without one; and prefill
 * micro-batches.  [any] */
uint64_t tsr_plan_build_tokens(const struct tsr_plan_problem *p);
uint64_t tsr_plan_build_rest(const struct tsr_plan_problem *p, uint64_t dec);
void     tsr_plan_build_mean(const struct tsr_plan_problem *p, uint64_t dec, double *v,
                             const double *rest, uint64_t n);
double   tsr_plan_build_prefills(const struct tsr_plan_problem *p, uint64_t pre, uint64_t dec);

#endif
