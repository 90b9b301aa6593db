/* How fast the error of the linears at one token falls as channels are added back (arXiv 2412.20185, Figure 5). */
#include "pipeline/steps/outliers.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

#define POINTS 64u /* of a curve, and the one without any channel */

const struct tsr_choice tsr_step_outliers_sites[TSR_MODEL_SITES] = {
    { "qkv", "the input of q, k and v", TSR_MODEL_SITE_ATTN_IN },
    { "o", "the input of o", TSR_MODEL_SITE_O_IN },
    { "gate_up", "the input of gate and up", TSR_MODEL_SITE_FFN_IN },
    { "down", "the input of down", TSR_MODEL_SITE_DOWN_IN },
};

struct rank {
    double   by;
    uint32_t channel;
};

static int descending(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->by != y->by)
        return x->by < y->by ? 1 : -1;
    return x->channel < y->channel ? -1 : x->channel > y->channel;
}

enum tsr_site tsr_step_outliers_place(const struct tsr_step_outliers_run *w, int kind)
{
    return w->sparse && kind >= TSR_MODEL_SITE_FFN_IN
               ? tsr_model_expert_site(w->expert, (enum tsr_site)kind)
               : (enum tsr_site)kind;
}

/* Channels that were added back at point p of `cols`. */
static uint64_t point_at(uint64_t p, uint64_t cols)
{
    return p * cols / POINTS;
}

/* Mean squares [POINTS + 1] of what the linears' outputs lack when the first channels of an order are added
 * back: from the last one on, what is still missing grows. */
static tsr_status curve(const struct tsr_step_outliers_run *w, int site, const struct rank *order,
                        double *mse, struct tsr_err *err)
{
    enum tsr_site                   place = tsr_step_outliers_place(w, site);
    uint64_t                        cols = w->c->site[w->layer][place].cols, outputs = 0;
    struct tsr_compensation_linears of = tsr_compensation_linears(w->m, w->layer, place);
    for (uint64_t p = 0; p <= POINTS; p++)
        mse[p] = 0;
    for (uint32_t l = 0; l < of.n; l++) {
        const struct tsr_compensate_residual *r = &w->c->lin[w->layer][of.id[l]];
        if (!r->codes)
            continue;
        double *e = tsr_new(r->outputs, sizeof *e);
        if (!e)
            return tsr_fail_nomem(err, r->outputs * sizeof *e, "errors");
        uint64_t i = cols;
        for (uint64_t p = POINTS + 1; p-- > 0;) {
            for (; i > point_at(p, cols); i--) {
                uint32_t ch = order[i - 1].channel;
                for (uint64_t n = 0; n < r->outputs; n++)
                    e[n] +=
                        (double)w->x[site][ch] * (double)tsr_compensate_residual_value(r, ch, n);
            }
            for (uint64_t n = 0; n < r->outputs; n++)
                mse[p] += e[n] * e[n];
        }
        outputs += r->outputs;
        free(e);
    }
    for (uint64_t p = 0; p <= POINTS && outputs; p++)
        mse[p] /= (double)outputs;
    return TSR_OK;
}

static bool put_list(json_t *j, const char *key, const double *v, uint64_t n)
{
    json_t *list = json_array();
    bool    ok = tsr_pipeline_json_put(j, key, list);
    for (uint64_t i = 0; i < n && ok; i++)
        ok = json_array_append_new(list, isfinite(v[i]) ? json_real(v[i]) : json_null()) == 0;
    return ok;
}

/* Share of the channels that halves the error. */
static double half(const double *mse)
{
    uint64_t p = 0;
    while (p < POINTS && !(mse[p] <= 0.5 * mse[0]))
        p++;
    return (double)p / POINTS;
}

tsr_status tsr_step_outliers_site(struct tsr_step_outliers_run *w, int site, json_t *list,
                                  struct tsr_err *err)
{
    uint64_t     cols = w->c->site[w->layer][tsr_step_outliers_place(w, site)].cols;
    struct rank *order = tsr_new(cols, sizeof *order);
    double       mse[2][POINTS + 1], size[POINTS + 1], channels[POINTS + 1];
    json_t      *j = json_object();
    tsr_status   st = order ? TSR_OK : tsr_fail_nomem(err, cols * sizeof *order, "channels");
    for (int way = 0; way < 2 && st == TSR_OK; way++) {
        uint64_t seed = w->o->seed < 0 ? w->job->seed : (uint64_t)w->o->seed;
        for (uint64_t i = 0; i < cols; i++) {
            order[i].channel = (uint32_t)i;
            order[i].by = way ? tsr_uniform(seed, (uint64_t)site, i) : fabs((double)w->x[site][i]);
        }
        qsort(order, cols, sizeof *order, descending);
        for (uint64_t p = 0; p <= POINTS && way == 0; p++) {
            uint64_t at = point_at(p, cols);
            channels[p] = (double)at;
            size[p] = order[at < cols ? at : cols - 1].by;
        }
        st = curve(w, site, order, mse[way], err);
    }
    free(order);
    bool ok =
        st == TSR_OK && tsr_pipeline_json_put_text(j, "name", tsr_step_outliers_sites[site].name) &&
        tsr_pipeline_json_put_int(j, "inputs", cols) &&
        put_list(j, "channels", channels, POINTS + 1) &&
        put_list(j, "magnitude", size, POINTS + 1) && put_list(j, "sorted", mse[0], POINTS + 1) &&
        put_list(j, "random", mse[1], POINTS + 1) &&
        tsr_pipeline_json_put_real(j, "half_sorted", half(mse[0])) &&
        tsr_pipeline_json_put_real(j, "half_random", half(mse[1]));
    ok = json_array_append_new(list, j) == 0 && ok;
    return st != TSR_OK || ok ? st : tsr_fail_nomem(err, POINTS, "the results");
}
