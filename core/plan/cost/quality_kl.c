/* Tables of KL by scheme, cache type and codec: tessera.indicators/2 (docs/formats/indicators.md). */
#include "base/mem.h"
#include "plan/cost/quality_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT   "tessera.indicators/2"
#define ORIGINAL 16u
#define NAMES    600

/* ---- numbers ------------------------------------------------------------------------------ */

/* A figure from 0 on; what rounding put below counts as 0. */
static tsr_status read_kl(const struct tsr_quality_table *t, const json_t *v, const char *what,
                          const char *of, double *kl, double *raised, struct tsr_err *err)
{
    *kl = json_is_number(v) ? json_number_value(v) : (double)NAN;
    if (!(fabs(*kl) <= TSR_QUALITY_MOST))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" of '%.80s' is not a number up to 1e100",
                        t->path, what, of);
    *raised += *kl < 0 ? -*kl : 0;
    *kl = fmax(*kl, 0);
    return TSR_OK;
}

/* null: not known. */
static tsr_status read_half(const struct tsr_quality_table *t, const json_t *v, const char *of,
                            double *half, struct tsr_err *err)
{
    *half = NAN;
    if (!v || json_is_null(v))
        return TSR_OK;
    *half = json_is_number(v) ? json_number_value(v) : -1;
    if (*half >= 0 && *half <= TSR_QUALITY_MOST)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT, "%s: \"half\" of '%.80s' is neither null nor from 0 to 1e100",
                    t->path, of);
}

/* ---- layers ------------------------------------------------------------------------------- */

static void names_of(const json_t *schemes, char *buf)
{
    const json_t *v;
    size_t        i, at = 0;
    buf[0] = '\0';
    json_array_foreach (schemes, i, v) {
        const char *name = json_string_value(json_object_get(v, "scheme"));
        if (name && at < NAMES)
            at += (size_t)snprintf(buf + at, NAMES - at, "%s%.80s", at ? ", " : "", name);
    }
}

static tsr_status read_scheme(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                              const json_t *one, uint64_t candidate, struct tsr_err *err)
{
    const char *of = json_string_value(json_object_get(one, "scheme"));
    json_t     *kl, *half = NULL;
    TSR_TRY(tsr_json_sub(one, t->path, "kl", true, JSON_ARRAY, &kl, err));
    TSR_TRY(tsr_json_sub(one, t->path, "half", false, JSON_ARRAY, &half, err));
    if (json_array_size(kl) != q->layers || (half && json_array_size(half) != q->layers))
        return tsr_fail(err, TSR_E_INPUT, "%s: '%.80s' has %zu figures for %llu layers", t->path,
                        of, json_array_size(kl), (unsigned long long)q->layers);
    for (uint64_t l = 0; l < q->layers; l++) {
        uint64_t at = l * q->candidates + candidate;
        TSR_TRY(read_kl(t, json_array_get(kl, l), "kl", of, &q->omega[at], &q->raised, err));
        TSR_TRY(read_half(t, json_array_get(half, l), of, &q->kl.half[at], err));
    }
    return TSR_OK;
}

static tsr_status read_schemes(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                               const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    json_t *list;
    char    names[NAMES];
    TSR_TRY(tsr_json_sub(t->root, t->path, "schemes", true, JSON_ARRAY, &list, err));
    for (uint64_t i = 0; i < c->n; i++) {
        const json_t *v, *found = NULL;
        size_t        k;
        if (c->v[i].mixed || !c->v[i].q.self)
            continue; /* the original; mixes are made of their parts */
        json_array_foreach (list, k, v) {
            const char *text = json_string_value(json_object_get(v, "scheme"));
            if (!text)
                return tsr_fail(err, TSR_E_INPUT, "%s: an entry of \"schemes\" has no \"scheme\"",
                                t->path);
            found = tsr_quality_is_scheme(&c->v[i], text) ? v : found;
        }
        names_of(list, names);
        if (!found)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: it has no figures of the candidate '%s' (%s%s%.60s), only of %s; "
                            "measure it too (tessera indicators --measure kl --schemes)",
                            t->path, c->v[i].name, c->v[i].scheme, *c->v[i].options ? ":" : "",
                            c->v[i].options, *names ? names : "none");
        TSR_TRY(read_scheme(q, t, found, i, err));
    }
    return TSR_OK;
}

/* ---- choices and the map ------------------------------------------------------------------ */

/* Proportions of layers, if the file measured them: figures from 0 on, not all 0. */
static tsr_status read_shares(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                              const json_t *one, struct tsr_plan_quality_choice *c,
                              struct tsr_err *err)
{
    json_t *list = NULL;
    double  sum = 0;
    TSR_TRY(tsr_json_sub(one, t->path, "layers", false, JSON_ARRAY, &list, err));
    if (!list)
        return TSR_OK;
    if (json_array_size(list) != q->layers)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"layers\" of '%.80s' has %zu figures for %llu layers", t->path,
                        c->name, json_array_size(list), (unsigned long long)q->layers);
    c->layers = tsr_new(q->layers, sizeof *c->layers);
    if (!c->layers)
        return tsr_fail_nomem(err, q->layers * sizeof *c->layers, "shares of layers");
    for (uint64_t l = 0; l < q->layers; l++) {
        TSR_TRY(
            read_kl(t, json_array_get(list, l), "layers", c->name, &c->layers[l], &q->raised, err));
        sum += c->layers[l];
    }
    return sum > 0 ? TSR_OK
                   : tsr_fail(err, TSR_E_INPUT, "%s: \"layers\" of '%.80s' are all 0", t->path,
                              c->name);
}

static tsr_status read_choices(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                               const char *list, const char *key, struct tsr_plan_quality_choice *v,
                               uint32_t *n, struct tsr_err *err)
{
    json_t       *all = NULL;
    const json_t *one;
    size_t        i;
    TSR_TRY(tsr_json_sub(t->root, t->path, list, false, JSON_ARRAY, &all, err));
    if (json_array_size(all) > TSR_PLAN_QUALITY_CHOICES)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" has more than %u entries", t->path, list,
                        TSR_PLAN_QUALITY_CHOICES);
    json_array_foreach (all, i, one) {
        struct tsr_plan_quality_choice *c = &v[*n];
        const char                     *name = json_string_value(json_object_get(one, key));
        int64_t                         context = 0;
        if (!name || !*name || strlen(name) >= sizeof c->name)
            return tsr_fail(err, TSR_E_INPUT, "%s: an entry of \"%s\" has no \"%s\"", t->path, list,
                            key);
        (void)snprintf(c->name, sizeof c->name, "%s", name);
        TSR_TRY(read_kl(t, json_object_get(one, "kl"), "kl", name, &c->kl, &q->raised, err));
        TSR_TRY(read_half(t, json_object_get(one, "half"), name, &c->half, err));
        if (strcmp(key, "kv") == 0)
            TSR_TRY(
                tsr_json_int(one, t->path, "context", true, 1, INT64_C(1) << 40, &context, err));
        if (strcmp(key, "scheme") == 0 &&
            !tsr_quality_read_interval(json_object_get(one, "interval"), &c->half))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"interval\" of '%.80s' in \"%s\" is not [low, high]", t->path,
                            name, list);
        c->context = (uint64_t)context;
        (*n)++; /* it owns its shares from here on */
        if (strcmp(key, "kv") == 0)
            TSR_TRY(read_shares(q, t, one, c, err));
    }
    return TSR_OK;
}

/* Ascending in both, from (0, 0); without one a sum is its KL. */
static tsr_status read_map(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                           struct tsr_err *err)
{
    struct tsr_plan_quality_kl *m = &q->kl;
    json_t                     *list = NULL;
    const json_t               *p;
    size_t                      i;
    TSR_TRY(tsr_json_sub(t->root, t->path, "map", false, JSON_ARRAY, &list, err));
    bool ok = json_array_size(list) <= TSR_PLAN_QUALITY_MAP;
    json_array_foreach (list, i, p) {
        const json_t *w = json_array_get(p, 0), *kl = json_array_get(p, 1);
        ok = ok && json_is_number(w) && json_is_number(kl) && json_array_size(p) == 2;
        if (!ok)
            break;
        m->map_w[i] = json_number_value(w);
        m->map_kl[i] = json_number_value(kl);
        ok = m->map_w[i] <= TSR_QUALITY_MOST && m->map_kl[i] <= TSR_QUALITY_MOST &&
             (i ? m->map_w[i] > m->map_w[i - 1] && m->map_kl[i] > m->map_kl[i - 1]
                : m->map_w[i] == 0 && m->map_kl[i] == 0);
        m->n_map = (uint32_t)i + 1;
    }
    return ok ? TSR_OK
              : tsr_fail(err, TSR_E_INPUT,
                         "%s: \"map\" is not a list of at most %u pairs [sum, kl] that ascend from "
                         "[0, 0]",
                         t->path, TSR_PLAN_QUALITY_MAP);
}

/* How far random plans are from the map. */
static tsr_status read_scatter(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                               struct tsr_err *err)
{
    json_t       *list = NULL;
    const json_t *p;
    size_t        i;
    TSR_TRY(tsr_json_sub(t->root, t->path, "plans", false, JSON_ARRAY, &list, err));
    json_array_foreach (list, i, p) {
        double w, kl, raised = 0;
        TSR_TRY(read_kl(t, json_object_get(p, "w"), "w", "a random plan", &w, &raised, err));
        TSR_TRY(read_kl(t, json_object_get(p, "kl"), "kl", "a random plan", &kl, &raised, err));
        if (kl > 0)
            q->kl.scatter = fmax(q->kl.scatter, fabs(tsr_plan_quality_kl_of(q, w) - kl) / kl);
    }
    return TSR_OK;
}

bool tsr_quality_is_kl(const struct tsr_quality_table *t)
{
    const char *format = json_string_value(json_object_get(t->root, "format"));
    return format && strcmp(format, FORMAT) == 0;
}

tsr_status tsr_quality_read_kl(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                               const char *want, const struct tsr_plan_shape *s,
                               const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    const char *model = NULL, *slash = strrchr(t->path, '/');
    int64_t     layers;
    if (want && *want && strcmp(want, "kl") != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: there is no table \"%.40s\", it has figures of KL",
                        t->path, want);
    TSR_TRY(tsr_json_int(t->root, t->path, "layers", true, 1, 1000000, &layers, err));
    if ((uint64_t)layers != s->layers)
        return tsr_fail(err, TSR_E_INPUT, "%s: is of a model of %lld layers, %s has %llu", t->path,
                        (long long)layers, s->name, (unsigned long long)s->layers);
    TSR_TRY(tsr_json_str(t->root, t->path, "model", true, &model, err));
    q->kl.on = true;
    q->eight = NAN;
    q->kl.half = tsr_new(s->layers * c->n, sizeof *q->kl.half);
    if (!q->kl.half)
        return tsr_fail_nomem(err, s->layers * c->n * 8, "intervals of KL");
    TSR_TRY(read_schemes(q, t, c, err));
    TSR_TRY(read_choices(q, t, "kv", "kv", q->kl.kv, &q->kl.n_kv, err));
    TSR_TRY(read_choices(q, t, "links", "codec", q->kl.link, &q->kl.n_link, err));
    TSR_TRY(read_choices(q, t, "sums", "codec", q->kl.sum, &q->kl.n_sum, err));
    TSR_TRY(read_choices(q, t, "ends", "scheme", q->kl.end, &q->kl.n_end, err));
    TSR_TRY(tsr_quality_read_kept(q, t, c, err));
    TSR_TRY(read_map(q, t, err));
    TSR_TRY(read_scatter(q, t, err));
    (void)snprintf(q->basis, sizeof q->basis, "kl of %.32s", slash ? slash + 1 : t->path);
    (void)snprintf(q->model, sizeof q->model, "%s", model);
    return TSR_OK;
}

/* ---- use ---------------------------------------------------------------------------------- */

/* y over x, straight between points, and on at the last one's ratio. */
static double along(const double *x, const double *y, uint32_t n, double at)
{
    uint32_t i = 1;
    if (n < 2)
        return at;
    while (i < n && x[i] < at)
        i++;
    if (i == n)
        return at * (y[n - 1] / x[n - 1]);
    return y[i - 1] + (y[i] - y[i - 1]) * ((at - x[i - 1]) / (x[i] - x[i - 1]));
}

double tsr_plan_quality_kl_of(const struct tsr_plan_quality *q, double w)
{
    return along(q->kl.map_w, q->kl.map_kl, q->kl.n_map, w);
}

double tsr_plan_quality_sum_of(const struct tsr_plan_quality *q, double kl)
{
    return along(q->kl.map_kl, q->kl.map_w, q->kl.n_map, kl);
}

const struct tsr_plan_quality_choice *tsr_plan_quality_kv(const struct tsr_plan_quality *q,
                                                          const char *kv, uint64_t context)
{
    const struct tsr_plan_quality_choice *best = NULL;
    for (uint32_t i = 0; i < q->kl.n_kv; i++) {
        const struct tsr_plan_quality_choice *c = &q->kl.kv[i];
        if (strcmp(c->name, kv) == 0 && c->context >= context &&
            (!best || c->context < best->context))
            best = c;
    }
    return best;
}

static const struct tsr_plan_quality_choice *find(const struct tsr_plan_quality_choice *v,
                                                  uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0)
            return &v[i];
    return NULL;
}

const struct tsr_plan_quality_choice *tsr_plan_quality_link(const struct tsr_plan_quality *q,
                                                            const char                    *codec)
{
    return find(q->kl.link, q->kl.n_link, codec);
}

const struct tsr_plan_quality_choice *tsr_plan_quality_sum(const struct tsr_plan_quality *q,
                                                           const char                    *codec)
{
    return find(q->kl.sum, q->kl.n_sum, codec);
}

const struct tsr_plan_quality_choice *tsr_plan_quality_end(const struct tsr_plan_quality   *q,
                                                           const struct tsr_plan_candidate *c)
{
    for (uint32_t i = 0; i < q->kl.n_end; i++)
        if (tsr_quality_is_scheme(c, q->kl.end[i].name))
            return &q->kl.end[i];
    return NULL;
}
