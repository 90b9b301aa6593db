/* Several texts: a verdict of each, next to that of all together. */
#include "base/mem.h"
#include "compare/compare.h"
#include "compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VERDICT 1000u

/* The part of a trace that is of one text; borrows. */
static struct tsr_eval_trace part_of(const struct tsr_eval_trace *a, const struct compare_text *t)
{
    return (struct tsr_eval_trace){ .nll = a->nll + t->at,
                                    .kl = a->kl ? a->kl + t->at : NULL,
                                    .top1 = a->top1 + t->at,
                                    .n = t->scored };
}

tsr_status compare_texts_measure(const struct compare *c, const struct tsr_eval_trace *a,
                                 const struct tsr_eval_trace *b, struct compare_text_test **out,
                                 struct tsr_err *err)
{
    *out = NULL;
    if (!c->n_texts)
        return TSR_OK;
    struct compare_text_test *tests = tsr_new(c->n_texts, sizeof *tests);
    if (!tests)
        return tsr_fail_nomem(err, c->n_texts * sizeof *tests, "texts");
    for (uint64_t i = 0; i < c->n_texts; i++) {
        const struct compare_text *t = &c->texts[i];
        struct tsr_eval_windows    w = *c->windows;
        struct tsr_eval_trace      x = part_of(a, t), y = part_of(b, t);
        w.start += t->first;
        w.score_from += t->first;
        w.weight += t->first;
        w.n = t->n;
        w.scored = t->scored;
        tests[i].p_holm = tests[i].kl_p_holm = (double)NAN;
        tsr_status st = tsr_eval_paired_measure(&tests[i].m, &w, &x, &y, c->keys.alpha, err);
        if (st != TSR_OK) {
            free(tests);
            return st;
        }
    }
    *out = tests;
    return TSR_OK;
}

tsr_status compare_texts_correct(const struct compare *c, struct compare_text_test *const *lists,
                                 uint64_t n, struct tsr_err *err)
{
    uint64_t  all = n * c->n_texts;
    double   *p = tsr_new(all, sizeof *p), *adjusted = tsr_new(all, sizeof *adjusted);
    uint64_t *order = tsr_new(all, sizeof *order);
    bool      ok = p && adjusted && order;
    for (int kl = 0; ok && kl < 2; kl++) {
        uint64_t k = 0;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t t = 0; lists[i] && t < c->n_texts; t++)
                p[k++] = kl ? lists[i][t].m.kl_delta.p : lists[i][t].m.delta.p;
        tsr_eval_holm(p, k, adjusted, order);
        k = 0;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t t = 0; lists[i] && t < c->n_texts; t++)
                *(kl ? &lists[i][t].kl_p_holm : &lists[i][t].p_holm) = adjusted[k++];
    }
    free(p);
    free(adjusted);
    free(order);
    return ok ? TSR_OK : tsr_fail_nomem(err, all * 24, "texts");
}

static bool put_kl(json_t *j, json_t *v, const struct compare_text_test *test, bool pair,
                   double alpha, char *text, size_t cap)
{
    const struct tsr_eval_paired *m = &test->m;
    if (!pair && isfinite(m->kl.d.mean)) {
        compare_add(text, cap, "; KL %.4g nats", m->kl.d.mean);
        return tsr_compare_json_put_difference(j, "kl", &m->kl.d);
    }
    if (!pair || isnan(m->kl_delta.mean))
        return true;
    compare_say_kl(text, cap, &m->kl_delta, test->kl_p_holm, alpha);
    return tsr_compare_json_put_difference(j, "kl_delta", &m->kl_delta) &&
           tsr_pipeline_json_put_real(json_object_get(j, "kl_delta"), "p_holm", test->kl_p_holm) &&
           tsr_pipeline_json_put_text(v, "kl",
                                      compare_word(m->kl_delta.mean, test->kl_p_holm, alpha));
}

static json_t *text_json(const struct compare *c, const struct compare_text *t,
                         const struct compare_text_test *test, bool pair)
{
    const struct tsr_eval_difference *d = &test->m.delta;
    char                              text[MAX_VERDICT] = "";
    json_t                           *j = json_object(), *v = json_object();
    bool                              ok = tsr_pipeline_json_put_text(j, "text", t->path) &&
              tsr_pipeline_json_put_text(j, "text_hash", t->hash) &&
              tsr_compare_json_put_difference(j, "delta", d) &&
              tsr_pipeline_json_put_real(json_object_get(j, "delta"), "p_holm", test->p_holm);
    compare_say_perplexity(text, sizeof text, d, test->p_holm, c->keys.alpha);
    ok = ok &&
         tsr_pipeline_json_put_text(v, "quality",
                                    compare_word(d->mean, test->p_holm, c->keys.alpha)) &&
         put_kl(j, v, test, pair, c->keys.alpha, text, sizeof text) &&
         tsr_pipeline_json_put_text(v, "text", text);
    ok = tsr_pipeline_json_put(j, "verdict", v) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

bool compare_put_texts(json_t *j, const struct compare *c, const struct compare_text_test *tests,
                       bool pair)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t i = 0; ok && i < c->n_texts; i++)
        ok = json_array_append_new(list, text_json(c, &c->texts[i], &tests[i], pair)) == 0;
    return tsr_pipeline_json_put(j, "texts", list) && ok;
}
