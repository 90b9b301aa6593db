/* Both phases of the tuner. */
#include "compensate/tune.h"

#include <math.h>
#include <string.h>

const struct tsr_choice tsr_freeze_choices[2] = {
    { "retry", "a linear that does not fit is tried again in each round",
      TSR_COMPENSATE_FREEZE_RETRY },
    { "once", "a linear that does not fit is left alone from then on", TSR_COMPENSATE_FREEZE_ONCE },
};

#define ALL_K 1024u /* above this there is nothing to add */

/* The largest of n ascending numbers that is at most `most`; 0: none. */
static uint32_t largest_of(const uint32_t *v, uint64_t n, uint32_t most)
{
    uint32_t best = 0;
    for (uint64_t i = 0; i < n && v[i] <= most; i++)
        best = v[i];
    return best;
}

double tsr_compensate_tune_knee(double bits, double host_gbps, double device_gbps)
{
    return 1024 * (bits / 4) * (host_gbps / device_gbps);
}

double tsr_compensate_own_us(uint64_t bytes, double bandwidth)
{
    return 1e6 * (double)bytes / bandwidth;
}

bool tsr_compensate_is_skipped(double own_us, double least_us)
{
    return least_us > 0 && !(own_us >= least_us);
}

/* ---- phase 1 ---------------------------------------------------------------------------------- */

struct tuning {
    const struct tsr_compensate_tune_table *t;
    struct tsr_compensate_tune_result      *r;
    uint32_t                                row[TSR_TUNE_MODULES]; /* of blocks */
};

static double time_of(const struct tuning *x, uint32_t i, uint32_t k)
{
    const struct tsr_compensate_tune_module *m = &x->t->m[i];
    return k == 0 ? m->base : m->ms[(uint64_t)x->row[i] * m->n_k + k];
}

/* All linears at one k; modules are added in their order. */
static double total_at(const struct tuning *x, uint32_t k)
{
    double sum = 0;
    for (uint32_t i = 0; i < x->t->n; i++)
        sum += time_of(x, i, x->r->dropped[i] ? 0 : k);
    return sum;
}

/* The rows for this many blocks; false: some linear has none that small. */
static bool choose_rows(struct tuning *x, uint32_t most)
{
    for (uint32_t i = 0; i < x->t->n; i++) {
        const struct tsr_compensate_tune_module *m = &x->t->m[i];
        uint32_t                                 b = largest_of(m->blocks, m->n_blocks, most);
        if (b == 0)
            return false;
        for (x->row[i] = 0; m->blocks[x->row[i]] != b; x->row[i]++)
            ;
    }
    return true;
}

static uint32_t longest_common(const struct tuning *x)
{
    uint32_t end = ALL_K + 1;
    for (uint32_t i = 0; i < x->t->n; i++)
        if (!x->r->dropped[i] && x->t->m[i].n_k < end)
            end = x->t->m[i].n_k;
    return end - 1;
}

/* Raises a common k until the target is passed; *ended: the table did not go on. */
static uint32_t raise_common(const struct tuning *x, bool *ended)
{
    uint32_t last = longest_common(x), k = 0;
    while (k < last && total_at(x, k + 1) <= x->r->limit)
        k++;
    *ended = k == last && last < ALL_K;
    return k;
}

/* The most blocks with the largest common k, of equal k with the lower time; 0 steps: k is 0. */
static tsr_status find_common(struct tuning *x, uint32_t most, struct tsr_err *err)
{
    double   best = INFINITY;
    uint32_t end = 0;
    for (uint32_t i = 0; i < x->t->n; i++) {
        const struct tsr_compensate_tune_module *m = &x->t->m[i];
        end = m->blocks[m->n_blocks - 1] > end ? m->blocks[m->n_blocks - 1] : end;
    }
    x->r->common = 0;
    for (uint32_t b = 1; b <= (most && most < end ? most : end); b++) {
        bool ended;
        if (!choose_rows(x, b))
            continue;
        uint32_t k = raise_common(x, &ended);
        if (ended)
            return tsr_fail(err, TSR_E_INPUT,
                            "the profile ends at k = %u, which %u blocks reach within the target; "
                            "measure it further",
                            k, b);
        double t = total_at(x, k);
        if (k > x->r->common || (k > 0 && k == x->r->common && t < best)) {
            x->r->common = k;
            x->r->most_blocks = b;
            best = t;
        }
    }
    return TSR_OK;
}

/* Leaves the smallest matrix out; false: then none would be left. */
static bool drop_smallest(struct tuning *x)
{
    uint32_t which = x->t->n, left = 0;
    double   least = INFINITY;
    for (uint32_t i = 0; i < x->t->n; i++) {
        double size = (double)x->t->m[i].inputs * (double)x->t->m[i].outputs;
        left += !x->r->dropped[i];
        if (!x->r->dropped[i] && size < least) {
            least = size;
            which = i;
        }
    }
    if (which == x->t->n)
        return false;
    x->r->dropped[which] = true;
    return left > 1;
}

/* ---- phase 2 ----------------------------------------------------------------------------------- */

static double total_now(const struct tuning *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < x->t->n; i++)
        sum += time_of(x, i, x->r->k[i]);
    return sum;
}

/* One round: the smaller increase first, each that still fits once.  False: none did. */
static bool raise_each(struct tuning *x, bool frozen[TSR_TUNE_MODULES], enum tsr_freeze freeze)
{
    bool     seen[TSR_TUNE_MODULES] = { false }, any = false;
    uint32_t n = x->t->n;
    for (uint32_t step = 0; step < n; step++) {
        uint32_t next = n;
        double   least = INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = x->r->k[i];
            if (seen[i] || frozen[i] || k + 1 >= x->t->m[i].n_k || k >= ALL_K)
                continue;
            double more = time_of(x, i, k + 1) - time_of(x, i, k);
            if (next == n || more < least) {
                next = i;
                least = more;
            }
        }
        if (next == n)
            break;
        seen[next] = true;
        x->r->k[next]++;
        if (total_now(x) <= x->r->limit) {
            any = true;
            continue;
        }
        x->r->k[next]--;
        frozen[next] = freeze == TSR_COMPENSATE_FREEZE_ONCE;
    }
    return any;
}

static tsr_status check_table(const struct tsr_compensate_tune_table *t, double slower,
                              struct tsr_err *err)
{
    if (t->n == 0 || t->n > TSR_TUNE_MODULES)
        return tsr_fail(err, TSR_E_INVAL, "a table of %u kinds of linears", t->n);
    if (!(slower >= 0) || !isfinite(slower))
        return tsr_fail(err, TSR_E_CONFIG, "a target of %g is not a slow-down", slower);
    return TSR_OK;
}

tsr_status tsr_compensate_tune(const struct tsr_compensate_tune_table *t, double slower,
                               uint32_t most, enum tsr_freeze freeze,
                               struct tsr_compensate_tune_result *r, struct tsr_err *err)
{
    struct tuning x = { .t = t, .r = r };
    bool          frozen[TSR_TUNE_MODULES] = { false };
    *r = (struct tsr_compensate_tune_result){ 0 };
    TSR_TRY(check_table(t, slower, err));
    bool any = false;
    for (uint32_t i = 0; i < t->n; i++) {
        r->base += t->m[i].base;
        r->skipped[i] = r->dropped[i] = tsr_compensate_is_skipped(1e3 * t->m[i].base, t->least_us);
        any = any || !r->skipped[i];
    }
    r->limit = r->base * (1 + slower);
    r->total = r->base;
    if (!any)
        return TSR_OK;
    do
        TSR_TRY(find_common(&x, most, err));
    while (r->common == 0 && drop_smallest(&x));
    if (r->common == 0) {
        r->most_blocks = 0;
        return TSR_OK;
    }
    (void)choose_rows(&x, r->most_blocks);
    for (uint32_t i = 0; i < t->n; i++) {
        r->k[i] = r->dropped[i] ? 0 : r->common;
        r->blocks[i] = r->dropped[i] ? 0 : t->m[i].blocks[x.row[i]];
        frozen[i] = r->dropped[i];
    }
    while (raise_each(&x, frozen, freeze))
        ;
    r->total = total_now(&x);
    return TSR_OK;
}
