/* tessera profile --check: workloads that the regression never saw. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Relative errors of one scheme and phase. */
struct errors {
    double   raw, normal, table, worst;
    uint64_t n;
};

/* A workload between the points of the grid, not on one: v, s, t log-uniform in its range. */
static struct profile_point pick(const struct profile *p, const struct profile_model *m,
                                 const struct profile_scheme *s, const struct tsr_profile *dev,
                                 uint64_t record)
{
    enum tsr_phase phase = record % 2 ? TSR_DECODE : TSR_PREFILL;
    uint64_t       top = profile_positions(p, m), seed = (uint64_t)p->o->seed;
    for (uint64_t try = 0;; try += 4) {
        struct profile_point at = { .phase = phase, .s = 1 };
        double a = tsr_uniform(seed, record, try), b = tsr_uniform(seed, record, try + 1);
        double c = tsr_uniform(seed, record, try + 2);
        if (phase == TSR_DECODE) {
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
            const struct tsr_point *k = &dev->points[i];
            /* a decode point holds its positions in t alone */
            known = known || (k->phase == phase && k->v == at.v && k->t == at.t &&
                              (phase == TSR_DECODE || k->s == at.s) &&
                              strcmp(k->kernel, s->kernel) == 0 && k->hidden == m->shape->hidden);
        }
        if (!known && at.v >= 1 && at.s >= 1)
            return at;
    }
}

static tsr_status predict(const struct profile_model *m, const struct tsr_mesh *mesh,
                          const struct tsr_candidate *c, const struct profile_point *at,
                          enum tsr_latency_mode mode, double *ms, struct tsr_err *err)
{
    struct tsr_latency_job j = { .shape = m->shape, .mode = mode, .kv_bits = 16 };
    struct tsr_time        t;
    TSR_TRY(tsr_latency_layer(&j, mesh, 0, c, at->phase, (double)at->v, (double)at->s,
                              (double)at->t, &t, err));
    *ms = t.ms;
    return TSR_OK;
}

void profile_choose(struct profile *p, const struct profile_model *m, struct profile_scheme *s,
                    const struct tsr_profile *dev)
{
    for (uint64_t i = 0; i < (uint64_t)p->o->check; i++)
        s->points[s->n_points++] = pick(p, m, s, dev, i);
}

static tsr_status compare(const struct profile_model *m, uint64_t scheme,
                          const struct tsr_mesh *mesh, struct errors e[2], struct tsr_err *err)
{
    const struct profile_scheme *s = &m->schemes[scheme];
    for (uint64_t i = s->n_grid; i < s->n_points; i++) {
        const struct profile_point *at = &s->points[i];
        struct errors              *to = &e[at->phase];
        double                      fit, table;
        TSR_TRY(predict(m, mesh, &m->candidates.v[scheme], at, TSR_LATENCY_FIT, &fit, err));
        TSR_TRY(predict(m, mesh, &m->candidates.v[scheme], at, TSR_LATENCY_TABLE, &table, err));
        to->raw += fabs(fit / at->raw_ms - 1);
        to->normal += fabs(fit / at->ms - 1);
        to->table += fabs(table / at->ms - 1);
        to->worst = fmax(to->worst, fabs(fit / at->ms - 1));
        to->n++;
        tsr_logf(TSR_LOG_DEBUG,
                 "%s %s v %llu s %llu t %llu: %.4f ms, normalised %.4f ms, fit %+.1f %%, table "
                 "%+.1f %%, spread %.3f",
                 s->kernel, at->phase == TSR_DECODE ? "decode" : "prefill",
                 (unsigned long long)at->v, (unsigned long long)at->s, (unsigned long long)at->t,
                 at->raw_ms, at->ms, 100 * (fit / at->ms - 1), 100 * (table / at->ms - 1),
                 at->spread);
    }
    return TSR_OK;
}

static void print_row(const struct profile *p, const struct profile_model *m,
                      const struct profile_scheme *s, const struct errors e[2], json_t *rows)
{
    static const char *const names[] = { "prefill", "decode" };
    for (int i = 0; i < 2; i++) {
        double n = (double)e[i].n;
        if (e[i].n == 0)
            continue;
        if (p->bench.cli->json)
            (void)json_array_append_new(rows,
                                        json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f}",
                                                  "model", m->path, "scheme", s->text, "phase",
                                                  names[i], "workloads", (json_int_t)e[i].n,
                                                  "error_normalised", e[i].normal / n, "error_raw",
                                                  e[i].raw / n, "error_table", e[i].table / n,
                                                  "worst", e[i].worst));
        else
            (void)printf("%-24s %-8s %9llu %11.2f %% %8.2f %% %8.2f %% %8.2f %%\n", s->text,
                         names[i], (unsigned long long)e[i].n, 100 * e[i].normal / n,
                         100 * e[i].raw / n, 100 * e[i].table / n, 100 * e[i].worst);
    }
}

tsr_status profile_check(struct profile *p, const struct tsr_profile *dev, struct tsr_err *err)
{
    json_t         *rows = json_array();
    tsr_status      st = rows ? TSR_OK : tsr_fail_nomem(err, 64, "results");
    struct tsr_mesh mesh = { .profile = dev, .tp = 1 };
    if (st == TSR_OK && !p->bench.cli->json)
        (void)printf("%-24s %-8s %9s %13s %10s %10s %10s\n", "scheme", "phase", "workloads",
                     "normalised", "raw", "table", "worst");
    for (uint64_t i = 0; i < p->n_models && st == TSR_OK; i++)
        for (uint64_t k = 0; k < p->n_schemes && st == TSR_OK; k++) {
            struct errors e[2] = { { 0 } };
            st = compare(&p->models[i], k, &mesh, e, err);
            if (st == TSR_OK)
                print_row(p, &p->models[i], &p->models[i].schemes[k], e, rows);
        }
    if (st == TSR_OK && p->bench.cli->json)
        return tsr_cli_print_json(rows, err);
    json_decref(rows);
    return st;
}
