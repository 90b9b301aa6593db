/* plan.h - shared by the solvers of this folder: memory, the cost of a plan, a bound for all plans.
 *
 * A plan under construction is a tsr_solver_solution with its arrays. docs/formats/instance.md has the
 * rules and both objectives; "kind" is an index of in->kinds, "q" one of the bit candidates. */
#ifndef TSR_SOLVER_PLAN_H
#define TSR_SOLVER_PLAN_H

#include "tessera/solver.h"

#include <stdbool.h>

/* ---- memory of the host's, released together ---------------------------------- */

#define PLAN_BLOCKS 96u

struct plan_arena {
    const struct tsr_host *host;
    uint32_t               n;
    bool                   failed; /* one plan_take() gave NULL, for whatever size */
    uint64_t               bytes;  /* of all, also of the one that failed */
    void                  *block[PLAN_BLOCKS];
    uint64_t               size[PLAN_BLOCKS];
};

/* n zeroed elements, aligned to 16; NULL when out of memory or the product overflows. */
void *plan_take(struct plan_arena *a, uint64_t n, uint64_t size);
/* The same with whatever the memory holds. */
void *plan_take_dirty(struct plan_arena *a, uint64_t n, uint64_t size);
void  plan_release(struct plan_arena *a);
/* A plan with room for everything; NULL as plan_take(). */
struct tsr_solver_solution *plan_new(struct plan_arena *a, const struct tsr_solver_instance *in);
/* The plan of one in the arrays of another; status, bound and reason stay. */
void plan_copy(struct tsr_solver_solution *to, const struct tsr_solver_solution *from,
               const struct tsr_solver_instance *in);

/* ---- numbers of an instance ------------------------------------------------------ */

struct plan_counts {
    double mu_pre, mu_dec, steps; /* jobs of prefill, decode micro-batches; steps, n - 1 */
};
struct plan_counts plan_counts(const struct tsr_solver_instance *in,
                               const struct tsr_solver_option   *o);
uint64_t           plan_devices(const struct tsr_solver_instance *in);
/* Index into pre_ms and dec_ms. */
uint64_t plan_entry(const struct tsr_solver_instance *in, uint64_t k, uint64_t layer, uint64_t q);
bool     plan_can_run(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                      uint64_t k, uint64_t layer, uint64_t q);
uint64_t plan_layer_bytes(const struct tsr_solver_instance *in, uint64_t layer, uint64_t q);
/* What a device of the kind has for layers, embedding and head; 0 when the workspace takes all. */
uint64_t plan_room(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                   uint64_t k);
/* max_omega with the validator's tolerance; INFINITY without a limit. */
double                 plan_omega_limit(const struct tsr_solver_instance *in);
static inline uint64_t plan_add(uint64_t a, uint64_t b) /* UINT64_MAX on overflow */
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
/* True where a link of the option takes time. */
bool plan_has_links(const struct tsr_solver_instance *in, const struct tsr_solver_option *o);

/* ---- cost ------------------------------------------------------------------------- */

/* The objective without theta W.  pre and dec are sums, with the link times where the objective
 * counts them; the maxima are over stages and links. */
double plan_time(const struct tsr_solver_instance *in, const struct plan_counts *c, double pre,
                 double dec, double max_pre, double max_dec);
/* How much the objective grows with prefill and decode time of the stage that is the slowest in
 * both: the stage with the largest sum of the two weighted times is the straggler. */
void   plan_bottleneck_weights(const struct tsr_solver_instance *in, const struct plan_counts *c,
                               double *pre, double *dec);
double plan_omega(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s);
/* The objective of a plan whose stages follow each other and whose order is allowed; false when
 * memory, a forbidden entry or max_omega rules it out. */
bool plan_cost(const struct tsr_solver_instance *in, const struct tsr_solver_solution *s,
               double *cost);

/* ---- bounds, bound.c ----------------------------------------------------------------- */

/* A lower bound over every plan of the option; INFINITY when it allows none, with the reason. */
double plan_bound(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                  const char **why);
/* The least over all options; *why is that of the last option without a plan. */
double plan_bound_all(const struct tsr_solver_instance *in, const char **why);

/* ---- time ------------------------------------------------------------------------------ */

uint64_t plan_now_us(void);

struct plan_clock {
    const struct tsr_host *host;
    uint64_t               end_us; /* 0: none */
    bool                   late, cancelled;
};
void plan_clock_start(struct plan_clock *c, const struct tsr_host *host, uint64_t deadline_us);
/* True when the search must end, for any reason; polls the host each time. */
bool plan_over(struct plan_clock *c);

/* Writes status, objective and bound of an answer whose best plan costs `best` (INFINITY: none below the
 * cutoff). bound: a proved lower bound of all plans; INFINITY: no plan exists, because of `why`. With a
 * finite bound, `why` says why no plan was found; NULL: time was up. */
void plan_answer(const struct tsr_solver_instance *in, struct tsr_solver_solution *out, double best,
                 double bound, const char *why);

#endif
