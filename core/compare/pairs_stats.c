/* Differences between two arms of a pair, with intervals, verdicts, sizes and speeds. */
#include "base/json.h"
#include "base/mem.h"
#include "compare/compare.h"
#include "compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VERDICT 1000u

static const struct compare_arm *arm_of(const struct compare *c, const char *name)
{
    for (uint64_t i = 0; i < c->n; i++)
        if (strcmp(c->arms[i].name, name) == 0)
            return &c->arms[i];
    return NULL;
}

struct pair {
    const struct compare_arm  *a, *b;
    bool                       has, has_speed;
    struct compare_ratio       prefill, decode; /* of the arm over the other, by rounds */
    struct tsr_eval_difference delta, kl_delta;
    double                     p_holm, kl_p_holm;
    struct compare_task_test  *tests; /* owned; NULL: none */
    struct compare_text_test  *on;    /* owned; NULL: one text */
};

static tsr_status measure_pair(const struct compare *c, struct pair *p, struct tsr_err *err)
{
    struct tsr_eval_paired m;
    if (c->tasks)
        TSR_TRY(compare_tasks_measure(c, p->a, p->b, &p->tests, err));
    if (p->a->status != TSR_OK || p->b->status != TSR_OK)
        return TSR_OK;
    p->has_speed = p->a->has_speed && p->b->has_speed;
    if (p->has_speed)
        TSR_TRY(compare_speed_ratios(c, p->a, p->b, &p->prefill, &p->decode, err));
    if (!p->a->at.n || !p->b->at.n)
        return TSR_OK;
    TSR_TRY(tsr_eval_paired_measure(&m, c->windows, &p->a->at, &p->b->at, c->keys.alpha, err));
    p->has = true;
    p->delta = m.delta;
    p->kl_delta = m.kl_delta;
    return compare_texts_measure(c, &p->a->at, &p->b->at, &p->on, err);
}

/* Over all pairs, as over all arms. */
static tsr_status correct_pairs(struct pair *pairs, uint64_t n, struct tsr_err *err)
{
    double   *p = tsr_new(n, sizeof *p), *adjusted = tsr_new(n, sizeof *adjusted);
    uint64_t *order = tsr_new(n, sizeof *order);
    bool      ok = p && adjusted && order;
    for (int kl = 0; ok && kl < 2; kl++) {
        uint64_t k = 0;
        for (uint64_t i = 0; i < n; i++)
            if (pairs[i].has)
                p[k++] = kl ? pairs[i].kl_delta.p : pairs[i].delta.p;
        tsr_eval_holm(p, k, adjusted, order);
        k = 0;
        for (uint64_t i = 0; i < n; i++)
            if (pairs[i].has)
                *(kl ? &pairs[i].kl_p_holm : &pairs[i].p_holm) = adjusted[k++];
    }
    free(p);
    free(adjusted);
    free(order);
    return ok ? TSR_OK : tsr_fail_nomem(err, n * 24, "pairs");
}

static bool put_pair_delta(json_t *j, const struct pair *p)
{
    bool ok = tsr_compare_json_put_difference(j, "delta", &p->delta) &&
              tsr_pipeline_json_put_real(json_object_get(j, "delta"), "p_holm", p->p_holm);
    if (isnan(p->kl_delta.mean))
        return ok;
    return ok && tsr_compare_json_put_difference(j, "kl_delta", &p->kl_delta) &&
           tsr_pipeline_json_put_real(json_object_get(j, "kl_delta"), "p_holm", p->kl_p_holm);
}

static bool has_result(const struct compare_arm *a)
{
    return a->status == TSR_OK && a->json;
}

/* What the two take, and how fast they are, where that differs. */
static bool put_costs(json_t *j, json_t *v, char *text, size_t cap, const struct pair *p)
{
    double a = json_number_value(json_object_get(p->a->json, "bytes")),
           b = json_number_value(json_object_get(p->b->json, "bytes"));
    const char *size = a < b ? "smaller" : a > b ? "larger" : "alike", *speed = NULL;
    bool        ok = tsr_pipeline_json_put_real(j, "size_ratio", a / b) &&
              tsr_pipeline_json_put_text(v, "size", size);
    if (a < b || a > b)
        compare_add(text, cap, "%s%.3g %% %s", *text ? "; " : "", 100 * fabs(a / b - 1), size);
    if (p->has_speed) {
        json_t *s = json_object();
        speed = compare_speed_word(&p->decode);
        ok = compare_put_ratio(s, "prefill_ratio", &p->prefill) &&
             compare_put_ratio(s, "decode_ratio", &p->decode) && ok;
        ok = tsr_pipeline_json_put(j, "speed", s) && ok;
    }
    if (speed && strcmp(speed, "alike") != 0)
        compare_add(text, cap, "%sdecode x%.2f [%.2f, %.2f], %s", *text ? "; " : "",
                    p->decode.median, p->decode.low, p->decode.high, speed);
    return tsr_pipeline_json_put_text(v, "speed", speed) && ok;
}

static json_t *pair_json(const struct compare *c, const struct pair *p)
{
    char    text[MAX_VERDICT] = "";
    json_t *j = json_object(), *v = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "arm", p->a->name) &&
              tsr_pipeline_json_put_text(j, "against", p->b->name);
    if (p->has) {
        compare_say_perplexity(text, sizeof text, &p->delta, p->p_holm, c->keys.alpha);
        ok = ok && put_pair_delta(j, p) &&
             tsr_pipeline_json_put_text(v, "quality",
                                        compare_word(p->delta.mean, p->p_holm, c->keys.alpha));
    }
    if (p->has && !isnan(p->kl_delta.mean)) {
        compare_say_kl(text, sizeof text, &p->kl_delta, p->kl_p_holm, c->keys.alpha);
        ok = ok && tsr_pipeline_json_put_text(v, "kl",
                                              compare_word(p->kl_delta.mean, p->kl_p_holm,
                                                           c->keys.alpha));
    }
    if (p->on)
        ok = ok && compare_put_texts(j, c, p->on, true);
    if (p->tests)
        ok = ok && compare_put_tasks(j, c, p->tests) &&
             tsr_pipeline_json_put_text(v, "tasks",
                                        compare_tasks_say(text, sizeof text, c, p->tests));
    bool both = has_result(p->a) && has_result(p->b);
    if (both)
        ok = put_costs(j, v, text, sizeof text, p) && ok;
    if (both && !*text)
        compare_add(text, sizeof text, "of one size%s", p->has_speed ? ", and of one speed" : "");
    if (p->has || p->tests || both)
        ok = ok && tsr_pipeline_json_put_text(v, "text", text);
    else
        ok = ok && tsr_pipeline_json_put_text(j, "failed", "one of the two has no result");
    ok = tsr_pipeline_json_put(j, "verdict", v) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* Of the tasks, as of the text: over all pairs. */
static tsr_status correct_pair_tasks(const struct compare *c, const struct pair *pairs, uint64_t n,
                                     struct tsr_err *err)
{
    struct compare_task_test **lists = tsr_new(n, sizeof(struct compare_task_test *));
    if (!lists)
        return tsr_fail_nomem(err, n * sizeof *lists, "pairs");
    for (uint64_t i = 0; i < n; i++)
        lists[i] = pairs[i].tests;
    tsr_status st = compare_tasks_correct(c, lists, n, err);
    free(lists);
    return st;
}

static tsr_status correct_pair_texts(const struct compare *c, const struct pair *pairs, uint64_t n,
                                     struct tsr_err *err)
{
    struct compare_text_test **lists = tsr_new(n, sizeof(struct compare_text_test *));
    if (!lists)
        return tsr_fail_nomem(err, n * sizeof *lists, "pairs");
    for (uint64_t i = 0; i < n; i++)
        lists[i] = pairs[i].on;
    tsr_status st = compare_texts_correct(c, lists, n, err);
    free(lists);
    return st;
}

tsr_status compare_pairs_json(const struct compare *c, json_t **out, struct tsr_err *err)
{
    uint64_t     n = c->n_pairs;
    struct pair *pairs = tsr_new(n, sizeof *pairs);
    *out = json_array();
    tsr_status st = *out && pairs ? TSR_OK : tsr_fail_nomem(err, n * sizeof *pairs, "pairs");
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        pairs[i].a = arm_of(c, c->pairs[i].arm);
        pairs[i].b = arm_of(c, c->pairs[i].against);
        st = measure_pair(c, &pairs[i], err);
    }
    if (st == TSR_OK)
        st = correct_pairs(pairs, n, err);
    if (st == TSR_OK && c->tasks)
        st = correct_pair_tasks(c, pairs, n, err);
    if (st == TSR_OK && c->n_texts)
        st = correct_pair_texts(c, pairs, n, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++)
        if (json_array_append_new(*out, pair_json(c, &pairs[i])) != 0)
            st = tsr_fail_nomem(err, 256, "the results");
    for (uint64_t i = 0; pairs && i < n; i++) {
        free(pairs[i].tests);
        free(pairs[i].on);
    }
    free(pairs);
    return st;
}
