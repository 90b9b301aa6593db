/* Devices: pools, and the sets of used devices that are the states of a path. */
#include "exact.h"

/* The pools, and how many devices of each can matter; without pools each kind is one. */
tsr_status ex_pools_init(struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    x->G = in->n_pools ? in->n_pools : x->K;
    x->pool = ex_new(x, 2 * x->K + x->G, sizeof *x->pool);
    if (!x->pool)
        return TSR_E_NOMEM;
    x->takes = x->pool + x->K;
    x->have = x->takes + x->K;
    for (uint64_t k = 0; k < x->K; k++) {
        uint64_t most;
        x->pool[k] = in->n_pools ? in->kinds[k]->pool : k;
        x->takes[k] = in->n_pools ? in->kinds[k]->takes : 1;
        if (__builtin_mul_overflow(x->takes[k], x->L, &most) || (in->n_pools && !in->allow_unused))
            most = UINT64_MAX; /* all are used, or there is no plan */
        uint64_t *have = &x->have[x->pool[k]];
        *have = most > *have ? most : *have;
    }
    for (uint64_t g = 0; g < x->G; g++) {
        uint64_t devices = in->n_pools ? in->pool_devices[g] : in->kinds[g]->count;
        x->have[g] = x->have[g] < devices ? x->have[g] : devices;
    }
    return TSR_OK;
}

/* A set of used devices is a number of each pool, a digit each. */
static tsr_status free_states(struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    uint64_t                          n = 1;
    for (uint64_t g = 0; g < x->G; g++)
        n *= x->have[g] + 1;
    x->n_states = n;
    x->next = ex_new(x, n * x->K, sizeof *x->next);
    x->complete = ex_new(x, n, sizeof *x->complete);
    if (!x->next || !x->complete)
        return TSR_E_NOMEM;
    for (uint64_t s = 0; s < n; s++) {
        uint64_t weight = 1;
        bool     all = true;
        for (uint64_t g = 0; g < x->G; g++) {
            uint64_t left = x->have[g] - s / weight % (x->have[g] + 1);
            for (uint64_t k = 0; k < x->K; k++)
                if (x->pool[k] == g)
                    x->next[s * x->K + k] =
                        x->takes[k] <= left ? (uint32_t)(s + x->takes[k] * weight) : EX_NONE;
            all &= left == 0;
            weight *= x->have[g] + 1;
        }
        x->complete[s] = in->allow_unused || all;
    }
    return TSR_OK;
}

/* Where a stage of kind k ends in the fixed order that begins at entry `at`; EX_NONE: nowhere. */
static uint32_t after_stage(const struct ex *x, uint64_t k, uint64_t at)
{
    const struct tsr_solver_instance *in = x->in;
    uint64_t                          start = at, run = 0;
    for (; at < in->order_len; at++) {
        run = in->order[at] == x->pool[k] ? run + 1 : 0;
        if (!in->allow_unused && run != at + 1 - start)
            break;
        if (run == x->takes[k])
            return (uint32_t)(at + 1);
    }
    return EX_NONE;
}

/* A fixed order: the state is the number of its devices already passed. */
static tsr_status order_states(struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    x->n_states = in->order_len + 1;
    x->next = ex_new(x, x->n_states * x->K, sizeof *x->next);
    x->complete = ex_new(x, x->n_states, sizeof *x->complete);
    if (!x->next || !x->complete)
        return TSR_E_NOMEM;
    for (uint64_t s = 0; s < x->n_states; s++) {
        for (uint64_t k = 0; k < x->K; k++)
            x->next[s * x->K + k] = after_stage(x, k, s);
        x->complete[s] = in->allow_unused || s == in->order_len;
    }
    return TSR_OK;
}

/* Which kinds can be but the first or the last stage of a plan. */
static tsr_status set_ends(struct ex *x)
{
    uint64_t K = x->K;
    bool    *reached = ex_new(x, x->n_states + 2 * K, sizeof *reached);
    if (!reached)
        return TSR_E_NOMEM;
    x->reached = reached;
    x->leads = reached + x->n_states;
    x->trails = x->leads + K;
    memset(x->leads, true, 2 * K);
    reached[0] = true;
    for (uint64_t st = 0; st < x->n_states; st++) /* next ones have larger numbers */
        for (uint64_t k = 0; k < K && reached[st]; k++) {
            uint32_t to = x->next[st * K + k];
            if (to == EX_NONE)
                continue;
            reached[to] = true;
            x->leads[k] &= st == 0;
            for (uint64_t after = 0; after < K; after++)
                x->trails[k] &= x->next[to * K + after] == EX_NONE;
        }
    return TSR_OK;
}

tsr_status ex_devices_init(struct ex *x)
{
    tsr_status st = x->in->order ? order_states(x) : free_states(x);
    return st == TSR_OK ? set_ends(x) : st;
}

bool ex_can_complete(const struct ex *x)
{
    for (uint64_t st = 0; st < x->n_states; st++)
        if (x->reached[st] && x->complete[st])
            return true;
    return false;
}
