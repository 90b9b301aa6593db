/* Instances of the whole batch where its requests run in several rounds.
 *
 * Requests that take freed slots add the larger of two terms (outcome_time.c): their share of the slowest stages, or one way
 * through all stages. The objective `steady` is the larger of two forms of the same kind. So with all prefill
 * micro-batches and the tokens of all rounds, an instance with the micro-batches of one round is a lower bound of the
 * batch's time: each of its forms is a sum of terms that the time has, less the filling of prefill in further rounds. A last round that is
 * not full counts by the smallest part of full decode micro-batches that it has; a smaller one, which has a time of its own
 * (outcome_rest.c), counts as nothing.
 */
#include "plan/search/build_internal.h"

#include <math.h>

static double pieces(uint64_t n, uint64_t size)
{
    uint64_t whole = n / size;
    return (double)(whole + (n % size != 0));
}

uint64_t tsr_plan_build_tokens(const struct tsr_plan_problem *p, const uint64_t *dec, uint64_t n)
{
    uint64_t once = p->memory.batch, full = p->work.batch / once, rest = p->work.batch % once;
    double   steps = (double)p->work.n - 1, part = rest ? 1 : 0;
    for (uint64_t i = 0; i < n && rest; i++) {
        uint64_t whole = rest / dec[i];
        part = fmin(part, (double)whole / pieces(once, dec[i]));
    }
    /* 1e-9: a whole number stays one */
    return 1 + (uint64_t)(steps * ((double)full + part) + 1e-9);
}

double tsr_plan_build_prefills(const struct tsr_plan_problem *p, uint64_t pre, uint64_t dec)
{
    uint64_t once = p->memory.batch, full = p->work.batch / once, rest = p->work.batch % once;
    uint64_t sets = rest / dec;
    return (double)full * (double)tsr_plan_prefill_count(once, pre, dec) +
           (double)sets * pieces(dec, pre) + pieces(rest % dec, pre);
}
