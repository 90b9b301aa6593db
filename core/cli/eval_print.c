/* What tessera eval prints. */
#include "cli/eval.h"

#include <math.h>
#include <stdio.h>

static const char *name_of(const struct tsr_choice *list, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].value == value)
            return list[i].name;
    return "?";
}

static bool put_questions(json_t *j, const struct eval_call *c)
{
    json_t *o = tsr_choices_json(&c->marks, c->reference ? &c->reference_marks : NULL, EVAL_ALPHA);
    bool    ok = tsr_json_put_text(o, "file", c->o->choices) &&
              tsr_json_put_text(o, "file_hash", c->choices->hash);
    return tsr_json_put(j, "choices", o) && ok;
}

#define REFERENCE_RAN " (act f32, KV f32, numerics exact)"

/* "act a8, f32 on 2 packed linears, KV int8, numerics exact" */
static void print_ran(const struct eval_call *c)
{
    char     also[64] = "";
    uint64_t ran[3];
    tsr_engine_acts(c->engine, ran);
    if (c->o->act != TSR_ACT_F32 && ran[TSR_ACT_F32])
        (void)snprintf(also, sizeof also, ", f32 on %llu packed linears",
                       (unsigned long long)ran[TSR_ACT_F32]);
    (void)printf("act %s%s, KV %s, numerics %s", tsr_act_name((uint32_t)c->o->act), also,
                 name_of(tsr_kv_choices, 3, c->o->kv),
                 name_of(tsr_numerics_choices, 2, c->o->numerics));
}

static tsr_status print_questions(const struct eval_call *c, struct tsr_err *err)
{
    double   low, high;
    uint64_t only, others;
    tsr_wilson(c->marks.right, c->marks.n, EVAL_ALPHA, &low, &high);
    (void)printf("accuracy %.2f %% [%.2f, %.2f]: %llu of %llu questions; by length %.2f %%  (",
                 100 * (double)c->marks.right / (double)c->marks.n, 100 * low, 100 * high,
                 (unsigned long long)c->marks.right, (unsigned long long)c->marks.n,
                 100 * (double)c->marks.right_normalized / (double)c->marks.n);
    print_ran(c);
    (void)printf(")\n");
    if (c->reference) {
        tsr_marks_discordant(c->marks.marks, c->reference_marks.marks, &only, &others);
        (void)printf("%s%s: %.2f %%; only %s is right in %llu, only %s in %llu; McNemar p %.3g\n",
                     c->o->against, REFERENCE_RAN,
                     100 * (double)c->reference_marks.right / (double)c->reference_marks.n, c->path,
                     (unsigned long long)only, c->o->against, (unsigned long long)others,
                     tsr_mcnemar(only, others));
    }
    return tsr_cli_flush(err);
}

/* How an engine ran. */
static bool put_ran(json_t *j, const struct tsr_engine *e, const struct tsr_engine_options *eo,
                    uint32_t numerics)
{
    uint64_t ran[3];
    tsr_engine_acts(e, ran);
    return tsr_json_put_act(j, eo->act, ran) &&
           tsr_json_put_text(j, "kv", name_of(tsr_kv_choices, 3, eo->kv_dtype)) &&
           tsr_json_put_text(j, "numerics", name_of(tsr_numerics_choices, 2, numerics)) &&
           tsr_json_put_text(j, "device", tsr_engine_device(e));
}

static bool put_reference(json_t *j, const struct eval_call *c)
{
    json_t                   *o = json_object();
    struct tsr_engine_options eo = eval_reference_options(c, 0);
    bool                      ok = tsr_json_put_text(o, "model", c->o->against) &&
              tsr_json_put_text(o, "model_hash", c->reference->hash) &&
              put_ran(o, c->reference_engine, &eo, TSR_NUMERICS_EXACT);
    return tsr_json_put(j, "reference", o) && ok;
}

tsr_status eval_print_json(const struct eval_call *c, struct tsr_err *err)
{
    const char *text = c->base ? c->o->against : c->o->eval.text;
    json_t     *j = c->choices ? json_object() : tsr_windows_json(c->windows, text, c->tokenizer);
    struct tsr_engine_options eo = eval_engine_options(c, 0);
    bool                      ok = j &&
              (c->choices ? put_questions(j, c) : tsr_eval_result_put(j, c->windows, &c->result)) &&
              tsr_json_put_text(j, "model", c->path) &&
              tsr_json_put_text(j, "model_hash", c->model->hash) &&
              put_ran(j, c->engine, &eo, (uint32_t)c->o->numerics) &&
              tsr_compensating_put(j, &c->o->compensation, &c->compensating, c->engine);
    if (ok && c->tp)
        ok = tsr_json_put(j, "simulated", tsr_tp_json(c->tp, c->model));
    if (ok && c->reference)
        ok = tsr_json_put_text(j, "against", c->o->against) &&
             tsr_json_put_text(j, "against_hash", c->reference->hash) && put_reference(j, c);
    else if (ok && c->base)
        ok = tsr_json_put_text(j, "against", c->o->against) &&
             tsr_json_put_text(j, "against_hash", c->base->hash);
    if (ok && !c->choices && (c->reference || c->base))
        ok = tsr_json_put_difference(j, "delta", &c->paired.delta);
    if (!ok) {
        json_decref(j);
        j = NULL;
    }
    return tsr_cli_print_json(j, err);
}

static tsr_status print_perplexity(const struct eval_call *c, struct tsr_err *err)
{
    const struct tsr_windows     *w = c->windows;
    const struct tsr_eval_result *r = &c->result;
    bool                          words = w->opt.protocol == TSR_PPL_LM_EVAL_WIKITEXT;
    (void)printf("perplexity %.6g  (%s on %s: %llu %s, %llu windows of %llu, BOS %s, ",
                 r->perplexity, w->protocol_name, c->base ? c->o->against : c->o->eval.text,
                 (unsigned long long)r->tokens, words ? "words" : "tokens",
                 (unsigned long long)w->n, (unsigned long long)w->window, w->bos);
    print_ran(c);
    (void)printf(")\n");
    if (c->tp)
        (void)printf("%u ranks, simulated: %s sums by codec %s, %.4g bits a number\n",
                     tsr_tp_ranks(c->tp), tsr_tp_algorithm(c->tp), tsr_tp_codec(c->tp),
                     tsr_tp_bits(c->tp, w->window, c->model->hp.hidden));
    if (words)
        (void)printf("byte perplexity %.6g, bits per byte %.6g\n", r->byte_perplexity,
                     r->bits_per_byte);
    if (isfinite(r->kl_mean))
        (void)
            printf("KL to %s%s: mean %.6g, median %.6g, 99%% %.6g, max %.6g; same top-1 %.2f %%\n",
                   c->o->against, c->reference ? REFERENCE_RAN : "", r->kl_mean, r->kl_median,
                   r->kl_p99, r->kl_max, 100 * r->top1);
    return tsr_cli_flush(err);
}

tsr_status eval_print_text(const struct eval_call *c, struct tsr_err *err)
{
    return c->choices ? print_questions(c, err) : print_perplexity(c, err);
}
