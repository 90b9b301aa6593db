/* tessera plan --diff A B: two plan files, thing by thing. */
#include "cli/jobs.h"
#include "cli/plan/plan_verb.h"

#include "pipeline/step.h"
#include "plan/file/plan_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RULE 600

struct both {
    const struct tsr_plan_file *a, *b;
    json_t                     *list; /* {"what", "a", "b"} */
    bool                        ok;
};

static void put(struct both *z, const char *what, const char *a, const char *b)
{
    if (strcmp(a, b) == 0)
        return;
    json_t *j = json_object();
    z->ok = tsr_pipeline_json_put_text(j, "what", what) && tsr_pipeline_json_put_text(j, "a", a) &&
            tsr_pipeline_json_put_text(j, "b", b) && z->ok;
    z->ok = json_array_append_new(z->list, j) == 0 && z->ok;
}

static void put_int(struct both *z, const char *what, int64_t a, int64_t b)
{
    char x[32], y[32];
    (void)snprintf(x, sizeof x, "%lld", (long long)a);
    (void)snprintf(y, sizeof y, "%lld", (long long)b);
    put(z, what, x, y);
}

/* Numbers that a planner printed with 9 digits: equal to 1e-8 is equal. */
static void put_real(struct both *z, const char *what, double a, double b)
{
    char x[48], y[48];
    if ((isnan(a) && isnan(b)) || fabs(a - b) <= 1e-8 * fmax(fabs(a), fabs(b)))
        return;
    (void)snprintf(x, sizeof x, isnan(a) ? "-" : "%.6g", a);
    if (isnan(a) || isnan(b) || a == 0)
        (void)snprintf(y, sizeof y, isnan(b) ? "-" : "%.6g", b);
    else
        (void)snprintf(y, sizeof y, "%.6g (%+.2f %%)", b, 100 * (b / a - 1));
    put(z, what, x, y);
}

static void heads(struct both *z)
{
    const struct tsr_plan_file *a = z->a, *b = z->b;
    put(z, "model", a->model, b->model);
    put(z, "headers", a->headers, b->headers);
    put_int(z, "layers", (int64_t)a->layers, (int64_t)b->layers);
    put_int(z, "prompt", a->load.prompt, b->load.prompt);
    put_int(z, "generate", a->load.generate, b->load.generate);
    put_int(z, "batch", a->load.batch, b->load.batch);
    put_int(z, "concurrency", a->load.concurrency, b->load.concurrency);
    put_int(z, "chunk", a->load.chunk, b->load.chunk);
    if (a->placed && b->placed) {
        put(z, "kv", tsr_plugin_kv_name(a->load.kv), tsr_plugin_kv_name(b->load.kv));
        put(z, "kv_layers", a->load.kv_layers, b->load.kv_layers);
    }
    put_int(z, "prefill micro-batch", a->prefill_mb, b->prefill_mb);
    put_int(z, "decode micro-batch", a->decode_mb, b->decode_mb);
    put(z, "head", tsr_plugin_choice_name(tsr_head_choices, 2, a->head),
        tsr_plugin_choice_name(tsr_head_choices, 2, b->head));
    put_int(z, "replicas", a->replicas, b->replicas);
    put_int(z, "share", a->share, b->share);
    put(z, "quality", a->quality, b->quality);
    put(z, "table", a->table, b->table);
    put(z, "indicators", a->quality_hash, b->quality_hash);
    put(z, "objective", tsr_plugin_choice_name(tsr_objective_choices, 2, a->objective),
        tsr_plugin_choice_name(tsr_objective_choices, 2, b->objective));
    put(z, "accounting", tsr_plugin_choice_name(tsr_accounting_choices, 2, a->accounting),
        tsr_plugin_choice_name(tsr_accounting_choices, 2, b->accounting));
}

static void stage_text(const struct tsr_plan_file *p, uint64_t i, char *buf, size_t cap)
{
    buf[0] = '-';
    buf[1] = '\0';
    if (i >= p->n_stages)
        return;
    const struct tsr_plan_stage *s = &p->stages[i];
    (void)snprintf(buf, cap, "layers %llu-%llu%s%.60s%s%.60s", (unsigned long long)s->first,
                   (unsigned long long)(s->first + s->count - 1), *s->node ? " on " : "", s->node,
                   *s->device ? ":" : "", s->device);
    size_t n = strlen(buf);
    if (s->cpu_experts && n < cap) {
        const struct tsr_config_node *at = tsr_config_node_get(s->map, "cpu_experts");
        bool                          all = strcmp(at->text, "true") == 0;
        (void)snprintf(buf + n, cap - n, ", experts%s%s on the CPU", all ? "" : " of layers ",
                       all ? "" : at->text);
        n = strlen(buf);
    }
    if (s->tp > 1 && n < cap)
        (void)snprintf(buf + n, cap - n, " x%lld%s", (long long)s->tp,
                       s->experts == TSR_PLAN_EXPERTS_WHOLE ? ", experts whole" : "");
}

/* A list of maps as text: "layers: 0-3, k: 16; layers: 4, k: 32", cut where it is too long; "" for none. */
static void list_text(const struct tsr_config_node *list, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = '\0';
    for (uint64_t i = 0; list && list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *e = list->items[i];
        for (uint64_t k = 0; e->kind == TSR_CONFIG_NODE_MAP && k < e->n && at < cap; k++)
            at += (size_t)snprintf(buf + at, cap - at, "%s%.40s: %.100s",
                                   k   ? ", "
                                   : i ? "; "
                                       : "",
                                   e->keys[k]->text,
                                   e->items[k]->kind == TSR_CONFIG_NODE_SCALAR ? e->items[k]->text
                                                                               : "?");
    }
}

static void compensation(struct both *z, uint64_t i)
{
    const struct tsr_plan_file *of[2] = { z->a, z->b };
    char                        text[2][RULE], what[60];
    for (int k = 0; k < 2; k++)
        list_text(i < of[k]->n_stages ? tsr_config_node_get(of[k]->stages[i].map, "compensation")
                                      : NULL,
                  text[k], sizeof text[k]);
    (void)snprintf(what, sizeof what, "stage %llu, channels", (unsigned long long)i);
    put(z, what, text[0], text[1]);
}

static void stages(struct both *z)
{
    uint64_t n = z->a->n_stages > z->b->n_stages ? z->a->n_stages : z->b->n_stages;
    for (uint64_t i = 0; i < n; i++) {
        char a[200], b[200], what[40];
        stage_text(z->a, i, a, sizeof a);
        stage_text(z->b, i, b, sizeof b);
        (void)snprintf(what, sizeof what, "stage %llu", (unsigned long long)i);
        put(z, what, a, b);
        compensation(z, i);
    }
    char x[RULE], y[RULE];
    list_text(z->a->ends, x, sizeof x);
    list_text(z->b->ends, y, sizeof y);
    put(z, "ends", x, y);
}

static void one_run(struct both *z, uint64_t first, uint64_t end, const char *a, const char *b)
{
    char what[60];
    if (first + 1 == end)
        (void)snprintf(what, sizeof what, "layer %llu", (unsigned long long)first);
    else
        (void)snprintf(what, sizeof what, "layers %llu-%llu", (unsigned long long)first,
                       (unsigned long long)(end - 1));
    put(z, what, a, b);
}

/* Runs of layers whose rules differ in the same way. */
static tsr_status layers(struct both *z, struct tsr_err *err)
{
    char     a[RULE] = "", b[RULE] = "", x[RULE], y[RULE];
    uint64_t first = 0, n = z->a->layers;
    if (z->b->layers != n)
        return TSR_OK;
    for (uint64_t l = 0; l < n; l++) {
        TSR_TRY(tsr_plan_file_layer(z->a, l, x, sizeof x, err));
        TSR_TRY(tsr_plan_file_layer(z->b, l, y, sizeof y, err));
        if (strcmp(a, x) == 0 && strcmp(b, y) == 0)
            continue;
        if (l)
            one_run(z, first, l, a, b);
        first = l;
        memcpy(a, x, sizeof a);
        memcpy(b, y, sizeof b);
    }
    one_run(z, first, n, a, b);
    return TSR_OK;
}

static void predictions(struct both *z)
{
    const struct tsr_plan_said *a = &z->a->said, *b = &z->b->said;
    put_real(z, "latency, ms", a->latency_ms, b->latency_ms);
    /* of all copies */
    put_real(z, "tokens/s", a->tokens_per_second * (double)z->a->replicas,
             b->tokens_per_second * (double)z->b->replicas);
    put_real(z, "omega", a->omega, b->omega);
    put_real(z, "KL", a->kl, b->kl);
    put_real(z, "KL of weights", a->of.weights, b->of.weights);
    put_real(z, "KL of caches", a->of.kv, b->of.kv);
    put_real(z, "KL of compensation", a->of.compensation, b->of.compensation);
    put_real(z, "KL of the ends", a->of.ends, b->of.ends);
    put_real(z, "objective, ms", a->objective_ms, b->objective_ms);
    put(z, "solver", a->solver, b->solver);
}

static tsr_status compare(struct tsr_cli *c, struct both *z, const char *x, const char *y,
                          struct tsr_err *err)
{
    const json_t *one;
    size_t        i;
    heads(z);
    stages(z);
    TSR_TRY(layers(z, err));
    predictions(z);
    if (!z->ok)
        return tsr_fail_nomem(err, 64, "a comparison");
    if (c->json)
        return tsr_cli_print_json(json_pack("{s:s, s:s, s:s, s:b, s:O}", "format",
                                            "tessera.plan-diff/1", "a", x, "b", y, "same",
                                            json_array_size(z->list) == 0, "differences", z->list),
                                  err);
    if (!json_array_size(z->list))
        (void)printf("%s and %s are the same plan\n", x, y);
    else
        (void)printf("%-20s %s\n%-20s %s\n\n", "a", x, "b", y);
    json_array_foreach (z->list, i, one) {
        const char *what = json_string_value(json_object_get(one, "what"));
        const char *a = json_string_value(json_object_get(one, "a"));
        const char *b = json_string_value(json_object_get(one, "b"));
        if (strlen(a) + strlen(b) < 50)
            (void)printf("%-20s %s -> %s\n", what, *a ? a : "-", *b ? b : "-");
        else
            (void)printf("%-20s %s\n%-20s -> %s\n", what, *a ? a : "-", "", *b ? b : "-");
    }
    return tsr_cli_flush(err);
}

tsr_status tsr_cli_plan_diff(struct tsr_cli *c, const char *x, const char *y, struct tsr_err *err)
{
    struct tsr_plan_file a = { 0 }, b = { 0 };
    struct tsr_diag     *d;
    struct both          z = { .a = &a, .b = &b, .list = json_array(), .ok = true };
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_plan_file_load(&a, x, d, err);
    bool       first = tsr_config_diag_errors(d) > 0;
    if (st == TSR_OK)
        st = tsr_plan_file_load(&b, y, d, err);
    if (st == TSR_OK)
        st = tsr_cli_diag(c, d, first ? x : y, err);
    if (st == TSR_OK && !z.list)
        st = tsr_fail_nomem(err, 64, "a comparison");
    if (st == TSR_OK)
        st = compare(c, &z, x, y, err);
    json_decref(z.list);
    tsr_plan_file_free(&a);
    tsr_plan_file_free(&b);
    tsr_config_diag_destroy(d);
    return st;
}
