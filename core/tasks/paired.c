#include "tasks/paired.h"

#include "base/json.h"
#include "base/mem.h"
#include "eval/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- units of the bootstrap ---------------------------------------------------------- */

/* Sums of each unit: a document, or a group of them. */
struct units {
    double  *a, *b, *w; /* [n]; of one allocation */
    uint64_t n;
};

static uint64_t count_groups(const struct tsr_tasks_marks *m)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < m->n; i++)
        n = m->group[i] + 1 > n ? m->group[i] + 1 : n;
    return n;
}

/* Groups are numbered in the order of their first rows, so that each has a document. */
static tsr_status make_units(struct units *u, const struct tsr_tasks_marks *a,
                             const struct tsr_tasks_marks *b, uint64_t k, struct tsr_err *err)
{
    uint64_t groups = count_groups(a), metrics = a->t->n_metrics;
    u->n = groups > 1 ? groups : a->n;
    u->a = tsr_new(3 * u->n, sizeof *u->a);
    if (!u->a)
        return tsr_fail_nomem(err, 3 * u->n * sizeof *u->a, "a bootstrap");
    u->b = u->a + u->n;
    u->w = u->b + u->n;
    for (uint64_t i = 0; i < a->n; i++) {
        uint64_t at = groups > 1 ? a->group[i] : i;
        u->a[at] += a->mark[i * metrics + k];
        u->b[at] += b->mark[i * metrics + k];
        u->w[at] += a->weight[i * metrics + k];
    }
    return TSR_OK;
}

/* ---- the difference ------------------------------------------------------------------- */

static double total(const double *v, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

/* Documents for 1 % of the other's metric, by the spread of what each adds to the difference of the weighted means. */
static double needed(const struct tsr_tasks_marks *a, const struct tsr_tasks_marks *b, uint64_t k,
                     const struct units *u, double alpha)
{
    uint64_t metrics = a->t->n_metrics;
    double   n = (double)a->n, w = total(u->w, u->n), mean = total(u->b, u->n) / w;
    double   away = total(u->a, u->n) / w - mean, square = 0.0;
    double   difference = a->t->metrics[k] == TSR_TASKS_BITS_PER_BYTE
                              ? TSR_TASKS_DIFFERENCE * fabs(mean)
                              : log1p(TSR_TASKS_DIFFERENCE);
    for (uint64_t i = 0; i < a->n; i++) {
        uint64_t at = i * metrics + k;
        double   one = (a->mark[at] - b->mark[at] - away * a->weight[at]) / (w / n);
        square += one * one;
    }
    double units = tsr_eval_paired_units(sqrt(square / (n - 1)), difference, alpha);
    return units < 2 ? 2 : units; /* a NaN stays */
}

static void count_discordant(struct tsr_tasks_paired *out, const struct tsr_tasks_marks *a,
                             const struct tsr_tasks_marks *b, uint64_t k)
{
    for (uint64_t i = 0; i < a->n; i++) {
        double x = a->mark[i * a->t->n_metrics + k], y = b->mark[i * a->t->n_metrics + k];
        out->only_a += x > y;
        out->only_b += x < y;
    }
}

static tsr_status resample(const struct units *u, tsr_tasks_metric_fn of, double alpha,
                           uint64_t seed, uint64_t draws, struct tsr_eval_resampled *r,
                           struct tsr_err *err)
{
    double *sorted = tsr_new(draws, sizeof *sorted);
    if (!sorted)
        return tsr_fail_nomem(err, draws * sizeof *sorted, "a bootstrap");
    tsr_eval_bootstrap_difference(u->a, u->b, u->w, u->n, of, draws, seed, alpha, sorted, r);
    free(sorted);
    return TSR_OK;
}

tsr_status tsr_tasks_paired_measure(struct tsr_tasks_paired *out, const struct tsr_tasks_marks *a,
                                    const struct tsr_tasks_marks *b, uint64_t k, double alpha,
                                    uint64_t seed, uint64_t draws, struct tsr_err *err)
{
    enum tsr_tasks_metric     m = a->t->metrics[k];
    tsr_tasks_metric_fn       of = tsr_tasks_metric_of(m);
    struct units              u = { 0 };
    struct tsr_eval_resampled r;
    if (a->n != b->n || a->t->n_metrics != b->t->n_metrics)
        return tsr_fail(err, TSR_E_BUG, "marks of %llu and %llu documents of task '%s'",
                        (unsigned long long)a->n, (unsigned long long)b->n, a->t->name);
    TSR_TRY(make_units(&u, a, b, k, err));
    tsr_status st = resample(&u, of, alpha, seed, draws, &r, err);
    if (st != TSR_OK) {
        free(u.a);
        return st;
    }
    double w = total(u.w, u.n);
    *out = (struct tsr_tasks_paired){ .value = of(total(u.a, u.n) / w) - of(total(u.b, u.n) / w),
                                      .low = r.low,
                                      .high = r.high,
                                      .mcnemar = NAN,
                                      .bootstrap = r.p,
                                      .documents = a->n,
                                      .units = u.n };
    if (tsr_tasks_metric_is_share(m)) {
        count_discordant(out, a, b, k);
        out->mcnemar = tsr_eval_mcnemar(out->only_a, out->only_b);
        out->is_mcnemar = u.n == a->n;
        out->needed = tsr_eval_mcnemar_questions((double)(out->only_a + out->only_b) / (double)a->n,
                                                 TSR_TASKS_DIFFERENCE, alpha);
    } else {
        out->needed = needed(a, b, k, &u, alpha);
    }
    out->p = !isfinite(out->value) ? NAN : out->is_mcnemar ? out->mcnemar : out->bootstrap;
    free(u.a);
    return TSR_OK;
}

/* ---- as JSON --------------------------------------------------------------------------- */

static json_t *share_json(const struct tsr_tasks_marks *m, uint64_t k)
{
    char *text = tsr_new(m->n + 1, 1);
    for (uint64_t i = 0; text && i < m->n; i++)
        text[i] = m->mark[i * m->t->n_metrics + k] > 0 ? '1' : '0';
    json_t *j = text ? json_stringn(text, m->n) : NULL;
    free(text);
    return j;
}

/* Every n-th of v from the k-th on. */
static json_t *list_json(const double *v, uint64_t count, uint64_t n, uint64_t k)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++)
        tsr_json_add(&list, json_real(v[i * n + k]));
    return list;
}

json_t *tsr_tasks_marks_json(const struct tsr_tasks_marks *m)
{
    const struct tsr_tasks_task *t = m->t;
    json_t                      *j = json_object(), *groups = json_array();
    for (uint64_t k = 0; k < t->n_metrics; k++) {
        json_t *one = json_object();
        bool    share = tsr_tasks_metric_is_share(t->metrics[k]);
        tsr_json_set(&one, "marks",
                     share ? share_json(m, k) : list_json(m->mark, m->n, t->n_metrics, k));
        if (t->kind == TSR_TASKS_TEXT)
            tsr_json_set(&one, "weights", list_json(m->weight, m->n, t->n_metrics, k));
        tsr_json_set(&j, tsr_tasks_metric_name(t->metrics[k]), one);
    }
    for (uint64_t i = 0; *t->by && i < m->n; i++)
        tsr_json_add(&groups, json_integer((json_int_t)m->group[i]));
    tsr_json_set(&j, "groups", groups);
    tsr_json_set(&j, "documents", json_integer((json_int_t)m->n));
    return j;
}

static tsr_status fail_marks(const char *name, const char *what, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT, "%s: the marks of '%s' are not whole", name, what);
}

/* Into every n-th of v from the k-th on. */
static bool read_numbers(double *v, uint64_t count, uint64_t n, uint64_t k, const json_t *list)
{
    bool ok = json_array_size(list) == count;
    for (uint64_t i = 0; ok && i < count; i++) {
        const json_t *one = json_array_get(list, i);
        ok = json_is_number(one);
        v[i * n + k] = json_number_value(one);
    }
    return ok;
}

static bool read_share(struct tsr_tasks_marks *m, uint64_t k, const json_t *j)
{
    const char *s = json_string_value(j);
    bool        ok = s && json_string_length(j) == m->n && strspn(s, "01") == m->n;
    for (uint64_t i = 0; ok && i < m->n; i++)
        m->mark[i * m->t->n_metrics + k] = s[i] == '1';
    return ok;
}

static bool read_metric(struct tsr_tasks_marks *m, uint64_t k, const json_t *one)
{
    uint64_t      n = m->t->n_metrics;
    const json_t *marks = json_object_get(one, "marks");
    for (uint64_t i = 0; i < m->n; i++)
        m->weight[i * n + k] = 1;
    if (m->t->kind == TSR_TASKS_TEXT &&
        !read_numbers(m->weight, m->n, n, k, json_object_get(one, "weights")))
        return false;
    return tsr_tasks_metric_is_share(m->t->metrics[k]) ? read_share(m, k, marks)
                                                       : read_numbers(m->mark, m->n, n, k, marks);
}

static bool read_groups(struct tsr_tasks_marks *m, const json_t *list)
{
    uint64_t next = 0;
    bool     ok = !*m->t->by || json_array_size(list) == m->n;
    for (uint64_t i = 0; ok && *m->t->by && i < m->n; i++) {
        json_int_t g = json_integer_value(json_array_get(list, i));
        ok = g >= 0 && (uint64_t)g <= next;
        m->group[i] = ok ? (uint64_t)g : 0;
        next += m->group[i] == next;
    }
    return ok;
}

tsr_status tsr_tasks_marks_load(struct tsr_tasks_marks **out, const struct tsr_tasks_task *t,
                                const json_t *j, const char *name, struct tsr_err *err)
{
    struct tsr_tasks_marks *m;
    json_int_t              n = json_integer_value(json_object_get(j, "documents"));
    *out = NULL;
    if (n < 1 || n > (json_int_t)1 << 26)
        return fail_marks(name, t->name, err);
    TSR_TRY(tsr_tasks_marks_create(&m, t, (uint64_t)n, err));
    m->n = (uint64_t)n;
    bool ok = read_groups(m, json_object_get(j, "groups"));
    for (uint64_t k = 0; ok && k < t->n_metrics; k++)
        ok = read_metric(m, k, json_object_get(j, tsr_tasks_metric_name(t->metrics[k])));
    if (!ok) {
        tsr_tasks_marks_destroy(m);
        return fail_marks(name, t->name, err);
    }
    *out = m;
    return TSR_OK;
}
