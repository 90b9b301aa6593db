/* tessera profile --check: workloads that the regression never saw. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/profile/profile.h"
#include "pipeline/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Relative errors of one scheme and phase, and their workloads: a list for --json. */
struct errors {
    double   raw, normal, table, worst;
    uint64_t n;
    json_t  *checked;
};

/* A workload between the points of the grid, not on one: v, s, t log-uniform in its range. */
static struct profile_point pick(const struct profile *p, const struct profile_model *m,
                                 const struct profile_scheme *s, const struct tsr_plan_profile *dev,
                                 uint64_t record)
{
    enum tsr_phase phase = record % 2 ? TSR_PLAN_DECODE : TSR_PLAN_PREFILL;
    uint64_t       top = profile_positions(p, m), seed = (uint64_t)p->o->seed;
    for (uint64_t try = 0;; try += 4) {
        struct profile_point at = { .phase = phase, .s = 1 };
        double a = tsr_uniform(seed, record, try), b = tsr_uniform(seed, record, try + 1);
        double c = tsr_uniform(seed, record, try + 2);
        if (phase == TSR_PLAN_DECODE) {
            at.v = (uint64_t)exp(a * log((double)profile_sequences(p) + 0.99));
            at.t = (uint64_t)((double)top / 16 * exp(b * log(15.9)));
        } else {
            at.v = (uint64_t)exp(a * log(8.99));
            at.v = at.v < profile_sequences(p) ? at.v : profile_sequences(p);
            /* as many tokens as the grid has at this many prompts */
            double most = fmin((double)top, at.v == 1   ? 1024
                                            : at.v <= 2 ? 512
                                            : at.v <= 4 ? 256
                                                        : 64);
            at.s = (uint64_t)(16 * exp(b * log(most / 16)));
            if (at.v == 1 && c > 0.5 && at.s <= 512)
                at.t = (uint64_t)((double)top / 2 * (c - 0.5) * 2);
        }
        at.t = at.s + at.t > top ? top - at.s : at.t;
        bool known = false;
        for (uint64_t i = 0; i < s->n_grid; i++)
            known = known || (s->points[i].phase == phase && s->points[i].v == at.v &&
                              s->points[i].s == at.s && s->points[i].t == at.t);
        for (uint64_t i = 0; dev && i < dev->n_points; i++) {
            const struct tsr_plan_point *k = &dev->points[i];
            /* a decode point holds its positions in t alone */
            known = known || (k->phase == phase && k->v == at.v && k->t == at.t &&
                              (phase == TSR_PLAN_DECODE || k->s == at.s) &&
                              strcmp(k->kernel, s->kernel) == 0 && k->hidden == m->shape->hidden);
        }
        if (!known && at.v >= 1 && at.s >= 1)
            return at;
    }
}

static tsr_status predict(const struct profile_model *m, const struct tsr_plan_mesh *mesh,
                          const struct tsr_plan_candidate *c, const struct profile_point *at,
                          enum tsr_latency_mode mode, double *ms, struct tsr_err *err)
{
    struct tsr_plan_latency_job j = { .shape = m->shape, .mode = mode, .kv_bits = 16 };
    struct tsr_plan_time        t;
    TSR_TRY(tsr_plan_latency_layer(&j, mesh, m->cls, c, at->phase, (double)at->v, (double)at->s,
                                   (double)at->t, &t, err));
    *ms = t.ms;
    return TSR_OK;
}

void profile_choose(struct profile *p, const struct profile_model *m, struct profile_scheme *s,
                    const struct tsr_plan_profile *dev)
{
    for (uint64_t i = 0; i < (uint64_t)p->o->check; i++)
        s->points[s->n_points++] = pick(p, m, s, dev, i);
}

/* The time of a workload, round by round, its counted value, and the prediction. */
static bool put_workload(json_t *list, const struct profile_scheme *s,
                         const struct profile_point *at, double fit, double table)
{
    json_t *j = json_object(), *rounds = json_array();
    bool    ok = tsr_pipeline_json_put_int(j, "sequences", at->v) &&
              tsr_pipeline_json_put_int(j, "tokens", at->s) &&
              tsr_pipeline_json_put_int(j, "past", at->t);
    for (uint64_t k = 0; k < s->rounds && ok; k++)
        ok = json_array_append_new(rounds, json_pack("{s:f, s:f}", "ms", at->round_ms[k],
                                                     "bytes_per_s", at->round_probe[k])) == 0;
    ok = tsr_pipeline_json_put(j, "rounds", rounds) && ok;
    ok = ok && tsr_pipeline_json_put_real(j, "raw_ms", at->raw_ms) &&
         tsr_pipeline_json_put_real(j, "power", at->power) &&
         tsr_pipeline_json_put_real(j, "ms", at->ms) &&
         tsr_pipeline_json_put_real(j, "fit_ms", fit) &&
         tsr_pipeline_json_put_real(j, "table_ms", table);
    if (ok)
        return json_array_append_new(list, j) == 0;
    json_decref(j);
    return false;
}

static tsr_status compare(const struct profile_model *m, uint64_t scheme,
                          const struct tsr_plan_mesh *mesh, struct errors e[2], struct tsr_err *err)
{
    const struct profile_scheme *s = &m->schemes[scheme];
    for (uint64_t i = s->n_grid; i < s->n_points; i++) {
        const struct profile_point *at = &s->points[i];
        struct errors              *to = &e[at->phase];
        double                      fit, table;
        TSR_TRY(predict(m, mesh, &m->candidates.v[scheme], at, TSR_PLAN_LATENCY_FIT, &fit, err));
        TSR_TRY(
            predict(m, mesh, &m->candidates.v[scheme], at, TSR_PLAN_LATENCY_TABLE, &table, err));
        to->raw += fabs(fit / at->raw_ms - 1);
        to->normal += fabs(fit / at->ms - 1);
        to->table += fabs(table / at->ms - 1);
        to->worst = fmax(to->worst, fabs(fit / at->ms - 1));
        to->n++;
        if (!put_workload(to->checked, s, at, fit, table))
            return tsr_fail_nomem(err, 64, "results");
        tsr_logf(TSR_LOG_DEBUG,
                 "%s %s v %llu s %llu t %llu: %.6g ms, normalised %.6g ms, fit %+.1f %%, table "
                 "%+.1f %%, spread %.3f",
                 s->kernel, at->phase == TSR_PLAN_DECODE ? "decode" : "prefill",
                 (unsigned long long)at->v, (unsigned long long)at->s, (unsigned long long)at->t,
                 at->raw_ms, at->ms, 100 * (fit / at->ms - 1), 100 * (table / at->ms - 1),
                 at->spread);
    }
    return TSR_OK;
}

/* Takes over e's lists. */
static bool put_row(const struct profile_model *m, const struct profile_scheme *s,
                    const char *phase, struct errors *e, json_t *rows)
{
    double  n = (double)e->n;
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "model", m->path) &&
              tsr_pipeline_json_put_int(j, "first_layer", profile_first(m)) &&
              tsr_pipeline_json_put_text(j, "scheme", s->text) &&
              tsr_pipeline_json_put_text(j, "kernel", s->kernel) &&
              tsr_pipeline_json_put_text(j, "phase", phase) &&
              tsr_pipeline_json_put_int(j, "layer_bytes", s->layer_bytes) &&
              tsr_pipeline_json_put_int(j, "workloads", e->n) &&
              tsr_pipeline_json_put_real(j, "error_normalised", e->normal / n) &&
              tsr_pipeline_json_put_real(j, "error_raw", e->raw / n) &&
              tsr_pipeline_json_put_real(j, "error_table", e->table / n) &&
              tsr_pipeline_json_put_real(j, "worst", e->worst);
    ok = tsr_pipeline_json_put(j, "checked", e->checked) && ok;
    e->checked = NULL;
    return json_array_append_new(rows, j) == 0 && ok;
}

static tsr_status print_row(const struct profile *p, const struct profile_model *m,
                            const struct profile_scheme *s, struct errors e[2], json_t *rows,
                            struct tsr_err *err)
{
    static const char *const names[] = { "prefill", "decode" };
    for (int i = 0; i < 2; i++) {
        double n = (double)e[i].n;
        if (e[i].n == 0)
            continue;
        if (p->bench.cli->json && !put_row(m, s, names[i], &e[i], rows))
            return tsr_fail_nomem(err, 64, "results");
        if (!p->bench.cli->json)
            (void)printf("%-24s %-8s %9llu %11.2f %% %8.2f %% %8.2f %% %8.2f %%\n", s->text,
                         names[i], (unsigned long long)e[i].n, 100 * e[i].normal / n,
                         100 * e[i].raw / n, 100 * e[i].table / n, 100 * e[i].worst);
    }
    return TSR_OK;
}

tsr_status profile_check(struct profile *p, const struct tsr_plan_profile *dev, struct tsr_err *err)
{
    json_t              *rows = json_array();
    tsr_status           st = rows ? TSR_OK : tsr_fail_nomem(err, 64, "results");
    struct tsr_plan_mesh mesh = { .profile = dev, .tp = 1 };
    if (st == TSR_OK && !p->bench.cli->json)
        (void)printf("%-24s %-8s %9s %13s %10s %10s %10s\n", "scheme", "phase", "workloads",
                     "normalised", "raw", "table", "worst");
    for (uint64_t i = 0; i < p->n_models && st == TSR_OK; i++)
        for (uint64_t k = 0; k < p->n_schemes && st == TSR_OK; k++) {
            struct errors e[2] = { { .checked = json_array() }, { .checked = json_array() } };
            st = compare(&p->models[i], k, &mesh, e, err);
            if (st == TSR_OK)
                st = print_row(p, &p->models[i], &p->models[i].schemes[k], e, rows, err);
            json_decref(e[0].checked);
            json_decref(e[1].checked);
        }
    if (st == TSR_OK && p->bench.cli->json)
        return tsr_cli_print_json(rows, err);
    json_decref(rows);
    return st;
}
