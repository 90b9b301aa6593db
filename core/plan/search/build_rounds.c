/* Instances of the whole batch where its requests run in several rounds.
 *
 * Requests that take freed slots add the larger of two terms (outcome_time.c): their share of the slowest stages, or one way
 * through all stages. The objective `steady` is the larger of two forms of the same kind. So with all prefill
 * micro-batches and the tokens of all rounds, an instance with the micro-batches of one round is a lower bound of the
 * batch's time: each of its forms is a sum of terms that the time has, less the filling of prefill in further rounds.
 *
 * A last round that is not full has as many tokens, but fewer micro-batches, of which one may be smaller.  An instance has no
 * such round.  So every decode time is the mean over all rounds of what a micro-batch of the round takes, where the last round
 * counts by its micro-batches over those of a full one, the smaller one with its own time. In the slowest stage that is what the last round
 * takes, and in the way through all stages no more than that.
 */
#include "plan/search/build_internal.h"

#include <math.h>

static double pieces(uint64_t n, uint64_t size)
{
    uint64_t whole = n / size;
    return (double)(whole + (n % size != 0));
}

uint64_t tsr_plan_build_tokens(const struct tsr_plan_problem *p)
{
    uint64_t once = p->memory.batch, rounds = p->work.batch / once + (p->work.batch % once != 0);
    return 1 + (p->work.n - 1) * rounds;
}

uint64_t tsr_plan_build_rest(const struct tsr_plan_problem *p, uint64_t dec)
{
    return p->work.batch % p->memory.batch % dec;
}

void tsr_plan_build_mean(const struct tsr_plan_problem *p, uint64_t dec, double *v,
                         const double *rest, uint64_t n)
{
    uint64_t once = p->memory.batch, rounds = p->work.batch / once, last = p->work.batch % once;
    uint64_t whole = last / dec; /* micro-batches of the last round that are full */
    double   full = (double)rounds, of = pieces(once, dec);
    for (uint64_t i = 0; last && i < n; i++) {
        double fewer = rest ? fmin(v[i], rest[i]) : 0; /* of NaN the first sum is NaN, too */
        v[i] = (full * v[i] + ((double)whole * v[i] + fewer) / of) / (full + 1);
    }
}

double tsr_plan_build_prefills(const struct tsr_plan_problem *p, uint64_t pre, uint64_t dec)
{
    uint64_t once = p->memory.batch, full = p->work.batch / once, rest = p->work.batch % once;
    uint64_t sets = rest / dec;
    return (double)full * (double)tsr_plan_prefill_count(once, pre, dec) +
           (double)sets * pieces(dec, pre) + pieces(rest % dec, pre);
}
