/* Measured tables of compensation. */
#include "pipeline/steps/tuning.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "compensate/select.h"
#include "pipeline/step.h"
#include "plan/file/plan_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[TSR_MODEL_SITES] = { "qkv", "o", "gate_up", "down" };

/* ---- measuring -------------------------------------------------------------------------------- */

/* Measured k; linear interpolation in between. */
static const uint32_t points[] = { 4, 8, 16, 32, 64, 128, 256, 512, 1024 };
#define POINTS (sizeof points / sizeof *points)

/* Weights of a kind that a token reads in a layer, and the columns of the widest. */
static uint64_t weights_of(const struct tsr_model *m, uint64_t layer, enum tsr_site kind,
                           uint64_t *widest)
{
    uint64_t sum = 0, taken = m->hp.experts_used;
    for (uint64_t s = 0; s < m->hp.sites; s++) {
        enum tsr_site                   site = (enum tsr_site)s;
        struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
        if (tsr_compensation_kind(site) != kind ||
            (s >= TSR_MODEL_SITE_EXPERTS && tsr_model_site_expert(site) >= taken))
            continue; /* all experts of a layer are alike */
        for (uint32_t i = 0; i < of.n; i++) {
            const struct tsr_matrix *w = &m->layers[layer].lin[of.id[i]].w;
            sum += w->rows * w->cols;
            *widest = w->rows && w->cols > *widest ? w->cols : *widest;
        }
    }
    return sum;
}

/* On average over the layers: as many outputs of the widest input as make up what a token reads. */
static void shape_of(const struct tsr_model *m, enum tsr_site kind,
                     struct tsr_compensate_tune_module *out)
{
    uint64_t sum = 0;
    (void)snprintf(out->name, sizeof out->name, "%s", kinds[kind]);
    for (uint64_t l = 0; l < m->hp.layers; l++)
        sum += weights_of(m, l, kind, &out->inputs);
    out->outputs = sum ? sum / out->inputs / m->hp.layers : 0;
}

/* Bits of a weight with its metadata, 0 where there are none; *bytes (NULL: not asked) of all. */
static double bits_of(const struct tsr_model *m, const struct tsr_model_overlay *o, uint64_t *bytes)
{
    uint64_t weights, n;
    tsr_model_overlay_size(m, o ? o : m->packed, &weights, &n);
    if (bytes)
        *bytes = n;
    return weights ? 8 * (double)n / (double)weights : 0;
}

/* ms of a layer at k. */
static tsr_status measure_at(struct tsr_engine *e, enum tsr_site site, uint32_t k, uint32_t repeats,
                             uint64_t layers, double *ms, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_compensate_k(e, NULL, k, err));
    TSR_TRY(tsr_engine_time_site(e, site, repeats, ms, err));
    *ms *= 1e3 / (double)layers;
    return TSR_OK;
}

/* ms [n_k]: of one number of blocks. */
static tsr_status measure_row(struct tsr_engine *e, enum tsr_site site, uint32_t repeats,
                              uint64_t layers, const struct tsr_compensate_tune_module *m,
                              double *ms, struct tsr_err *err)
{
    uint32_t last = 1;
    double   before;
    /* while k of 1024 selects no channel, there is no work */
    for (ms[0] = m->base; tsr_compensate_select_count(last, m->inputs) == 0; last++)
        ms[last] = m->base;
    TSR_TRY(measure_at(e, site, last, repeats, layers, &before, err));
    ms[last] = before;
    for (size_t p = 0; p < POINTS; p++) {
        double now;
        if (points[p] <= last)
            continue;
        TSR_TRY(measure_at(e, site, points[p], repeats, layers, &now, err));
        for (uint32_t k = last; k <= points[p]; k++)
            ms[k] = before + (now - before) * (double)(k - last) / (double)(points[p] - last);
        last = points[p];
        before = now;
    }
    return TSR_OK;
}

/* Numbers of thread blocks that are tried: doubled from 4 on, of a small device from 1 on, and the most; of a device that
 * chooses, the threads. */
static void choose_blocks(struct tsr_compensate_tune_module *m, uint32_t most, uint32_t threads)
{
    m->n_blocks = 0;
    for (uint32_t b = most > 8 ? 4 : 1; b < most && m->n_blocks + 1 < TSR_TUNE_BLOCKS; b *= 2)
        m->blocks[m->n_blocks++] = b;
    m->blocks[m->n_blocks++] = most ? most : threads;
}

static tsr_status measure_site(struct tsr_engine *e, enum tsr_site site, uint32_t repeats,
                               uint64_t layers, bool chosen, struct tsr_compensate_tune_module *m,
                               struct tsr_err *err)
{
    m->n_k = TSR_COMPENSATE_CHUNK + 1;
    m->ms = tsr_new((uint64_t)m->n_blocks * m->n_k, sizeof *m->ms);
    if (!m->ms)
        return tsr_fail_nomem(err, m->n_k * sizeof *m->ms, "a table of times");
    TSR_TRY(measure_at(e, site, 0, repeats, layers, &m->base, err));
    tsr_status st = TSR_OK;
    for (uint32_t b = 0; b < m->n_blocks && st == TSR_OK; b++) {
        tsr_engine_compensate_blocks(e, site, chosen ? m->blocks[b] : 0);
        st = measure_row(e, site, repeats, layers, m, m->ms + (uint64_t)b * m->n_k, err);
    }
    tsr_engine_compensate_blocks(e, site, 0);
    return st;
}

/* What the times say of the memory: weights over the bare time, residuals over what the second half of the
 * channels takes more. */
static void rates(struct tsr_compensate_tune_table *t, const struct tsr_model *m,
                  uint32_t residual_bits, uint64_t bytes)
{
    double base = 0, more = 0, rows = 0, read = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct tsr_compensate_tune_module *k = &t->m[i];
        const double *ms = k->ms + (uint64_t)(k->n_blocks - 1) * k->n_k; /* of the most blocks */
        base += k->base;
        more += ms[1024] - ms[512];
        rows += (double)k->inputs / 2 * (double)k->outputs * residual_bits / 8;
        read += (double)k->inputs * (double)k->outputs * t->bits / 8;
    }
    if (!m->hp.experts) /* of experts a token reads some */
        read = (double)bytes / (double)m->hp.layers;
    t->device_gbps = read / base * 1e-6;
    t->host_gbps = more > 0 ? rows / more * 1e-6 : 0;
}

tsr_status tsr_step_tuning_measure(struct tsr_compensate_tune_table *t, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_model_overlay *o,
                                   const struct tsr_compensation  *c,
                                   const struct tsr_plugin_run_on *on, uint32_t act,
                                   uint32_t repeats, struct tsr_err *err)
{
    struct tsr_engine           *e = NULL;
    struct tsr_engine_compensate use = { .from = c, .each = TSR_COMPENSATE_CHUNK };
    struct tsr_engine_options    opt = {
           .on = *on, .act = act, .kv_dtype = TSR_F32, .slots = 1, .context = 16, .compensate = &use
    };
    uint32_t                      threads = tsr_pool_threads(tsr_plugin_registry_pool(r));
    uint64_t                      bytes;
    struct tsr_engine_compensated done = { 0 };
    *t = (struct tsr_compensate_tune_table){ .residual = c->bits };
    t->bits = bits_of(m, o, &bytes);
    tsr_status st = tsr_engine_create(&e, r, m, o, &opt, err);
    if (st == TSR_OK) {
        tsr_engine_compensation(e, &done);
        t->least_us = done.over_bus ? TSR_COMPENSATE_LEAST_US : 0;
        (void)snprintf(t->device, sizeof t->device, "%s", tsr_engine_device(e));
    }
    for (uint32_t s = 0; s < TSR_MODEL_SITES && st == TSR_OK; s++) {
        struct tsr_compensate_tune_module *k = &t->m[t->n++];
        shape_of(m, (enum tsr_site)s, k);
        choose_blocks(k, done.most_blocks, threads);
        st = measure_site(e, (enum tsr_site)s, repeats, m->hp.layers, done.most_blocks > 0, k, err);
        tsr_progress("tune", s + 1, TSR_MODEL_SITES);
    }
    tsr_engine_destroy(e);
    if (st != TSR_OK)
        tsr_compensate_tune_free(t);
    else
        rates(t, m, c->bits, bytes);
    return st;
}

static json_t *module_json(const struct tsr_compensate_tune_module *m)
{
    json_t *j = json_object(), *blocks = json_array(), *rows = json_array();
    bool    ok = tsr_pipeline_json_put_text(j, "name", m->name) &&
              tsr_pipeline_json_put_int(j, "inputs", m->inputs) &&
              tsr_pipeline_json_put_int(j, "outputs", m->outputs) &&
              tsr_pipeline_json_put_real(j, "base_ms", m->base);
    for (uint64_t b = 0; b < m->n_blocks && ok; b++) {
        json_t *row = json_array();
        for (uint64_t k = 0; k < m->n_k && ok; k++)
            ok = json_array_append_new(row, json_real(m->ms[b * m->n_k + k])) == 0;
        ok = json_array_append_new(rows, row) == 0 && ok;
        ok = json_array_append_new(blocks, json_integer(m->blocks[b])) == 0 && ok;
    }
    ok = tsr_pipeline_json_put(j, "blocks", blocks) && ok;
    ok = tsr_pipeline_json_put(j, "ms", rows) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static json_t *table_json(const struct tsr_compensate_tune_table *t)
{
    json_t *j = json_object(), *list = json_array();
    bool    ok = tsr_pipeline_json_put_text(j, "format", TSR_COMPENSATE_TUNE_FORMAT) &&
              tsr_pipeline_json_put_text(j, "device", t->device) &&
              tsr_pipeline_json_put_real(j, "bits", t->bits);
    if (ok && t->residual)
        ok = tsr_pipeline_json_put_int(j, "residual", t->residual);
    if (ok && t->least_us > 0)
        ok = tsr_pipeline_json_put_real(j, "least_us", t->least_us);
    if (ok && t->host_gbps > 0)
        ok = tsr_pipeline_json_put_real(j, "host_gbps", t->host_gbps);
    if (ok && t->device_gbps > 0)
        ok = tsr_pipeline_json_put_real(j, "device_gbps", t->device_gbps);
    for (uint32_t i = 0; i < t->n && ok; i++)
        ok = json_array_append_new(list, module_json(&t->m[i])) == 0;
    ok = tsr_pipeline_json_put(j, "modules", list) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

tsr_status tsr_step_tuning_store(const struct tsr_compensate_tune_table *t,
                                 struct tsr_pipeline_job *job, const char *name,
                                 struct tsr_err *err)
{
    char *path = NULL;
    TSR_TRY(tsr_pipeline_job_output(job, name, &path, err));
    json_t    *j = table_json(t);
    tsr_status st = j ? tsr_json_store(path, j, JSON_INDENT(1) | JSON_REAL_PRECISION(9), err)
                      : tsr_fail_nomem(err, 0, name);
    json_decref(j);
    free(path);
    return st;
}

/* ---- what was found ----------------------------------------------------------------------------- */

/* The place of a name among the kinds; TSR_MODEL_SITES: none. */
static int kind_of(const char *name)
{
    int s = 0;
    while (s < TSR_MODEL_SITES && strcmp(kinds[s], name) != 0)
        s++;
    return s;
}

static tsr_status fits_shape(const struct tsr_compensate_tune_module *k, const char *what,
                             const struct tsr_model *m, bool seen[TSR_MODEL_SITES],
                             struct tsr_err *err)
{
    struct tsr_compensate_tune_module is = { .n_k = 0 };
    int                               s = kind_of(k->name);
    if (s == TSR_MODEL_SITES)
        return tsr_fail(err, TSR_E_INPUT, "%s: module '%s' is not one of qkv, o, gate_up, down",
                        what, k->name);
    if (seen[s])
        return tsr_fail(err, TSR_E_INPUT, "%s: module '%s' is there twice", what, k->name);
    seen[s] = true;
    shape_of(m, (enum tsr_site)s, &is);
    if (k->inputs == is.inputs && k->outputs == is.outputs)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: module '%s' was measured with %llu inputs and %llu outputs, in %s it has "
                    "%llu and %llu; measure this model (tune without profile)",
                    what, k->name, (unsigned long long)k->inputs, (unsigned long long)k->outputs,
                    m->path, (unsigned long long)is.inputs, (unsigned long long)is.outputs);
}

tsr_status tsr_step_tuning_fits(const struct tsr_compensate_tune_table *t, const char *what,
                                const struct tsr_model *m, const struct tsr_model_overlay *o,
                                const struct tsr_compensation *c, struct tsr_err *err)
{
    bool   seen[TSR_MODEL_SITES] = { false };
    double bits = bits_of(m, o, NULL);
    for (uint32_t i = 0; i < t->n; i++)
        TSR_TRY(fits_shape(&t->m[i], what, m, seen, err));
    if (t->bits > 0 && !(fabs(t->bits / bits - 1) <= 0.01))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: was measured on weights of %.3f bits, those of %s have %.3f with "
                        "their scales; measure this model (tune without profile)",
                        what, t->bits, m->path, bits);
    if (t->residual && t->residual != c->bits)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: was measured with residuals of %u bits, those of %s have %u; measure "
                        "them (tune without profile)",
                        what, t->residual, m->path, c->bits);
    return TSR_OK;
}

void tsr_step_tuning_sites(const struct tsr_compensate_tune_table  *t,
                           const struct tsr_compensate_tune_result *r, uint32_t k[TSR_MODEL_SITES])
{
    for (int s = 0; s < TSR_MODEL_SITES; s++)
        k[s] = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        int s = kind_of(t->m[i].name);
        if (s < TSR_MODEL_SITES)
            k[s] = r->k[i];
    }
}

void tsr_step_tuning_blocks(const struct tsr_compensate_tune_table  *t,
                            const struct tsr_compensate_tune_result *r,
                            uint32_t                                 blocks[TSR_MODEL_SITES])
{
    for (int s = 0; s < TSR_MODEL_SITES; s++)
        blocks[s] = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        int s = kind_of(t->m[i].name);
        if (s < TSR_MODEL_SITES && t->m[i].n_blocks > 1)
            blocks[s] = r->blocks[i];
    }
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

tsr_status tsr_step_tuning_lost(const struct tsr_compensation *c, const uint32_t k[TSR_MODEL_SITES],
                                double *lost, struct tsr_err *err)
{
    double   all = 0, left = 0;
    uint64_t most = 0;
    for (uint64_t l = 0; l < c->layers; l++)
        for (uint64_t s = 0; s < c->sites; s++)
            if (c->site[l][s].top && c->site[l][s].cols > most)
                most = c->site[l][s].cols;
    float *v = most ? tsr_new(most, sizeof *v) : NULL;
    if (most && !v)
        return tsr_fail_nomem(err, most * sizeof *v, "the lost error of a site");
    for (uint64_t l = 0; l < c->layers; l++)
        for (uint64_t s = 0; s < c->sites; s++) {
            const struct tsr_compensate_site_profile *p = &c->site[l][s];
            if (!p->top || !v)
                continue;
            memcpy(v, p->lost, p->cols * sizeof *v);
            qsort(v, p->cols, sizeof *v, descending);
            uint64_t n =
                tsr_compensate_select_count(k[tsr_compensation_kind((enum tsr_site)s)], p->cols);
            for (uint64_t i = 0; i < p->cols; i++) {
                all += (double)v[i];
                left += i < n ? 0 : (double)v[i];
            }
        }
    free(v);
    *lost = all > 0 ? left / all : 1;
    return TSR_OK;
}
