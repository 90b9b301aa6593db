/* The metrics of lm-evaluation-harness: means with the sample standard deviation over sqrt(n), perplexities, and a
 * bootstrap where it takes one. */
#include "tasks/metrics.h"

#include "base/mem.h"
#include "tasks/random.h"

#include <math.h>
#include <stdlib.h>

#define ALL    UINT64_MAX
#define CHUNKS UINT64_C(100)  /* of the bootstrap, chunk i seeded with i */
#define CHUNK  UINT64_C(1000) /* resamples */

/* ---- metrics ------------------------------------------------------------------------ */

static double as_it_is(double mean)
{
    return mean;
}

static double perplexity(double mean)
{
    return exp(-mean);
}

static double bits(double mean)
{
    return -mean / log(2);
}

bool tsr_tasks_metric_is_share(enum tsr_tasks_metric m)
{
    return m <= TSR_TASKS_ACC_MUTUAL_INFO;
}

tsr_tasks_metric_fn tsr_tasks_metric_of(enum tsr_tasks_metric m)
{
    return tsr_tasks_metric_is_share(m)   ? as_it_is
           : m == TSR_TASKS_BITS_PER_BYTE ? bits
                                          : perplexity;
}

/* ---- marks -------------------------------------------------------------------------- */

tsr_status tsr_tasks_marks_create(struct tsr_tasks_marks **out, const struct tsr_tasks_task *t,
                                  uint64_t documents, struct tsr_err *err)
{
    struct tsr_tasks_marks *m = tsr_new(1, sizeof *m);
    *out = NULL;
    if (m) {
        m->t = t;
        m->cap = documents;
        m->mark = tsr_new(documents * t->n_metrics, sizeof *m->mark);
        m->weight = tsr_new(documents * t->n_metrics, sizeof *m->weight);
        m->group = tsr_new(documents, sizeof *m->group);
    }
    if (!m || !m->mark || !m->weight || !m->group) {
        tsr_tasks_marks_destroy(m);
        return tsr_fail_nomem(err, documents * 24, "the marks of a task");
    }
    *out = m;
    return TSR_OK;
}

void tsr_tasks_marks_destroy(struct tsr_tasks_marks *m)
{
    if (!m)
        return;
    free(m->mark);
    free(m->weight);
    free(m->group);
    free(m);
}

/* Of document i by the k-th metric: 0 or 1, or a log-likelihood. */
static double mark_at(const struct tsr_tasks_marks *m, uint64_t i, uint64_t k)
{
    return m->mark[i * m->t->n_metrics + k];
}

/* ---- one document ------------------------------------------------------------------- */

/* What a choice counts by a metric. */
static double score(enum tsr_tasks_metric m, const struct tsr_tasks_document *d,
                    const struct tsr_eval_likelihood *l, uint64_t i)
{
    switch (m) {
    case TSR_TASKS_ACC_NORM: /* an empty choice: -inf, as there */
        return l[i].sum / (double)d->characters[i];
    case TSR_TASKS_ACC_BYTES:
        return l[i].sum / (double)d->bytes[i];
    case TSR_TASKS_ACC_MUTUAL_INFO:
        return l[i].sum - l[d->n + i].sum;
    default:
        return l[i].sum;
    }
}

/* Whether the best choice, the first of equals, is the answer. */
static double is_right(enum tsr_tasks_metric m, const struct tsr_tasks_document *d,
                       const struct tsr_eval_likelihood *l)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < d->n; i++)
        if (score(m, d, l, i) > score(m, d, l, best))
            best = i;
    return best == d->answer ? 1 : 0;
}

void tsr_tasks_marks_add(struct tsr_tasks_marks *m, const struct tsr_tasks_document *d,
                         const struct tsr_eval_likelihood *l)
{
    const struct tsr_tasks_task *t = m->t;
    bool choices = t->kind == TSR_TASKS_CHOICES || t->kind == TSR_TASKS_CONTEXTS;
    for (uint64_t k = 0; k < t->n_metrics; k++) {
        enum tsr_tasks_metric what = t->metrics[k];
        double               *mark = &m->mark[m->n * t->n_metrics + k];
        if (choices)
            *mark = is_right(what, d, l);
        else
            *mark = what == TSR_TASKS_ACC ? l->is_greedy : l->sum;
        m->weight[m->n * t->n_metrics + k] = what == TSR_TASKS_WORD_PERPLEXITY ? (double)d->words
                                             : what > TSR_TASKS_WORD_PERPLEXITY
                                                 ? (double)d->text_bytes
                                                 : 1;
    }
    m->group[m->n++] = d->group;
}

/* ---- all of them -------------------------------------------------------------------- */

struct sum {
    double   marks, weights, mean, square; /* square: of the distances from the mean */
    uint64_t n;
};

static struct sum sum_of(const struct tsr_tasks_marks *m, uint64_t group, uint64_t k)
{
    struct sum s = { 0 };
    for (uint64_t i = 0; i < m->n; i++)
        if (group == ALL || m->group[i] == group) {
            s.marks += mark_at(m, i, k);
            s.weights += m->weight[i * m->t->n_metrics + k];
            s.n++;
        }
    s.mean = s.marks / (double)s.n;
    for (uint64_t i = 0; i < m->n; i++)
        if (group == ALL || m->group[i] == group) {
            double away = mark_at(m, i, k) - s.mean;
            s.square += away * away;
        }
    return s;
}

/* Standard deviation of exp(-mean) over resamples of the documents. */
static tsr_status bootstrap(const struct tsr_tasks_marks *m, uint64_t group, uint64_t k, uint64_t n,
                            double *deviation, struct tsr_err *err)
{
    struct tsr_tasks_random r;
    double *v = tsr_new(n, sizeof *v), *found = tsr_new(CHUNKS * CHUNK, sizeof *found), mean = 0;
    double  square = 0;
    if (!v || !found) {
        free(v);
        free(found);
        return tsr_fail_nomem(err, CHUNKS * CHUNK * sizeof *found, "a bootstrap");
    }
    for (uint64_t i = 0, at = 0; i < m->n; i++)
        if (group == ALL || m->group[i] == group)
            v[at++] = mark_at(m, i, k);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        tsr_tasks_random_seed(&r, i);
        for (uint64_t j = 0; j < CHUNK; j++) {
            double sum = 0;
            for (uint64_t a = 0; a < n; a++)
                sum += v[(uint64_t)(tsr_tasks_random_unit(&r) * (double)n)];
            found[i * CHUNK + j] = exp(-sum / (double)n);
            mean += found[i * CHUNK + j];
        }
    }
    mean /= (double)(CHUNKS * CHUNK);
    for (uint64_t i = 0; i < CHUNKS * CHUNK; i++)
        square += (found[i] - mean) * (found[i] - mean);
    *deviation = sqrt(square / (double)(CHUNKS * CHUNK - 1));
    free(v);
    free(found);
    return TSR_OK;
}

/* Over several groups: the variances of their means by their sizes. */
static double pooled_error(const struct tsr_tasks_marks *m, uint64_t groups, uint64_t k)
{
    double   square = 0;
    uint64_t n = 0;
    for (uint64_t g = 0; g < groups; g++) {
        struct sum s = sum_of(m, g, k); /* (n - 1) * stderr^2 * n is the sum of the squares */
        square += s.square;
        n += s.n;
    }
    return n > groups ? sqrt(square / (double)(n - groups) / (double)n) : NAN;
}

static tsr_status summarize_one(const struct tsr_tasks_marks *m, uint64_t group, uint64_t groups,
                                uint64_t k, struct tsr_tasks_value *out, struct tsr_err *err)
{
    struct sum s = sum_of(m, group, k);
    out->value = tsr_tasks_metric_of(m->t->metrics[k])(s.marks / s.weights);
    out->stderr_value = NAN;
    if (m->t->metrics[k] == TSR_TASKS_PERPLEXITY)
        return s.n > 1 ? bootstrap(m, group, k, s.n, &out->stderr_value, err) : TSR_OK;
    if (!tsr_tasks_metric_is_share(m->t->metrics[k]))
        return TSR_OK;
    if (group == ALL && groups > 1)
        out->stderr_value = pooled_error(m, groups, k);
    else if (s.n > 1)
        out->stderr_value = sqrt(s.square / (double)(s.n - 1)) / sqrt((double)s.n);
    return TSR_OK;
}

tsr_status tsr_tasks_marks_summarize(const struct tsr_tasks_marks *m, uint64_t group,
                                     uint64_t groups, struct tsr_tasks_summary *out,
                                     struct tsr_err *err)
{
    *out = (struct tsr_tasks_summary){ 0 };
    for (uint64_t i = 0; i < m->n; i++)
        out->documents += group == ALL || m->group[i] == group;
    for (uint64_t k = 0; k < m->t->n_metrics; k++)
        TSR_TRY(summarize_one(m, group, groups, k, &out->metric[k], err));
    return TSR_OK;
}
