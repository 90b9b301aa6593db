/* Log-likelihood, KL and argmax of rows of logits, in double. */
#include "eval/eval.h"

#include <math.h>

double tsr_eval_nll(const float *logits, uint64_t vocab, uint32_t label, double *lse)
{
    float max = logits[0];
    for (uint64_t i = 1; i < vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0.0;
    for (uint64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    *lse = (double)max + log(sum);
    return *lse - (double)logits[label];
}

double tsr_eval_kl(const float *p, double p_lse, const float *q, double q_lse, uint64_t vocab)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < vocab; i++) {
        double lp = (double)p[i] - p_lse, lq = (double)q[i] - q_lse;
        sum += exp(lp) * (lp - lq);
    }
    return sum > 0.0 ? sum : 0.0 * sum; /* rounding may leave -1e-17; NaN stays */
}

uint64_t tsr_eval_argmax(const float *logits, uint64_t vocab)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}
