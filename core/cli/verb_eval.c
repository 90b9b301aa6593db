/* tessera eval: perplexity by a named protocol, and KL and top-1 against another model. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "pipeline/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eval_options {
    struct tsr_eval_keys eval;
    const char          *against, *backend;
    int64_t              act, kv, chunk, numerics;
};

static const struct tsr_choice kvs[] = {
    { "f32", "F32 cache", TSR_F32 },
    { "f16", "F16 cache", TSR_F16 },
    { "int8", "int8 cache, a scale per head and token", TSR_I8 },
};

#define S struct eval_options
static const struct tsr_option options[] = {
    TSR_EVAL_OPTIONS(S, eval),
    TSR_OPTION_STRING(S, against, "", "A model to compare with on the same tokens: KL and top-1."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, tsr_act_choices, "How activations enter packed weights."),
    TSR_OPTION_ENUM(S, kv, TSR_F32, kvs, "Type of the KV cache."),
    TSR_OPTION_INT(S, chunk, 0, 0, 1 << 20, "tokens",
                   "Most tokens in one pass; 0 takes the engine's choice."),
    TSR_OPTION_ENUM(S, numerics, TSR_NUMERICS_EXACT, tsr_numerics_choices,
                    "Whether instructions that only some machines have may run."),
    TSR_OPTION_STRING(S, backend, "cpu", "Backend that runs the models."),
};
#undef S

/* Everything of one call; what is NULL was not made. */
struct call {
    const struct eval_options *o;
    const char                *path;
    struct tsr_registry       *registry;
    struct tsr_model          *model, *reference;
    struct tsr_tokenizer      *tokenizer, *reference_tokenizer;
    struct tsr_windows        *windows;
    struct tsr_engine         *engine, *reference_engine;
    struct tsr_eval_result     result;
};

static tsr_status load_tokenizer(struct tsr_tokenizer **t, const char *model, bool optional,
                                 struct tsr_err *err)
{
    char *folder = NULL;
    TSR_TRY(tsr_model_resolve(model, &folder, err));
    char      *file = tsr_path_join(folder, "tokenizer.json");
    tsr_status st = TSR_OK;
    if (!file)
        st = tsr_fail_nomem(err, strlen(folder), "a path");
    else if (!optional || tsr_path_exists(file))
        st = tsr_tokenizer_load(t, folder, err);
    free(file);
    free(folder);
    return st;
}

static tsr_status load_reference(struct call *c, struct tsr_err *err)
{
    const char *path = c->o->against;
    TSR_TRY(tsr_model_load(&c->reference, path, false, err));
    TSR_TRY(load_tokenizer(&c->reference_tokenizer, path, true, err));
    if (c->reference->hp.vocab != c->model->hp.vocab)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has a vocabulary of %llu, %s of %llu; they cannot be "
                        "compared",
                        path, (unsigned long long)c->reference->hp.vocab, c->path,
                        (unsigned long long)c->model->hp.vocab);
    if (c->reference_tokenizer &&
        strcmp(tsr_tokenizer_hash(c->reference_tokenizer), tsr_tokenizer_hash(c->tokenizer)) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s and %s have different tokenizers; KL needs the same "
                        "tokens",
                        path, c->path);
    if (c->windows->window > c->reference->hp.max_positions)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has %llu positions, fewer than the window of %llu; "
                        "give --window",
                        path, (unsigned long long)c->reference->hp.max_positions,
                        (unsigned long long)c->windows->window);
    return TSR_OK;
}

static tsr_status evaluate(struct call *c, struct tsr_err *err)
{
    const struct eval_options *o = c->o;
    TSR_TRY(tsr_model_load(&c->model, c->path, false, err));
    TSR_TRY(load_tokenizer(&c->tokenizer, c->path, false, err));
    TSR_TRY(
        tsr_eval_keys_windows(&o->eval, o->eval.text, c->tokenizer, c->model, &c->windows, err));
    struct tsr_engine_options eo = { .backend = o->backend,
                                     .act = (uint32_t)o->act,
                                     .kv_dtype = (uint32_t)o->kv,
                                     .slots = 1,
                                     .context = c->windows->window,
                                     .chunk = (uint64_t)o->chunk };
    if (*o->against)
        TSR_TRY(load_reference(c, err));
    TSR_TRY(tsr_engine_create(&c->engine, c->registry, c->model, NULL, &eo, err));
    if (c->reference)
        TSR_TRY(tsr_engine_create(&c->reference_engine, c->registry, c->reference, NULL, &eo, err));
    return tsr_eval_run(c->engine, c->reference_engine, tsr_registry_pool(c->registry), c->windows,
                        &c->result, err);
}

static tsr_status print_json(const struct call *c, struct tsr_err *err)
{
    json_t  *j = tsr_windows_json(c->windows, c->o->eval.text, c->tokenizer);
    uint64_t ran[3];
    tsr_engine_acts(c->engine, ran);
    bool ok = j && tsr_eval_result_put(j, c->windows, &c->result) &&
              tsr_json_put_text(j, "model", c->path) &&
              tsr_json_put_text(j, "model_hash", c->model->hash) &&
              tsr_json_put_act(j, (uint32_t)c->o->act, ran) &&
              tsr_json_put_text(j, "device", tsr_engine_device(c->engine));
    if (ok && c->reference)
        ok = tsr_json_put_text(j, "against", c->o->against) &&
             tsr_json_put_text(j, "against_hash", c->reference->hash);
    if (!ok) {
        json_decref(j);
        j = NULL;
    }
    return tsr_cli_print_json(j, err);
}

static tsr_status print_text(const struct call *c, struct tsr_err *err)
{
    const struct tsr_windows     *w = c->windows;
    const struct tsr_eval_result *r = &c->result;
    bool                          words = w->opt.protocol == TSR_PPL_LM_EVAL_WIKITEXT;
    (void)printf("perplexity %.6g  (%s on %s: %llu %s, %llu windows of %llu, BOS %s)\n",
                 r->perplexity, w->protocol_name, c->o->eval.text, (unsigned long long)r->tokens,
                 words ? "words" : "tokens", (unsigned long long)w->n,
                 (unsigned long long)w->window, w->bos);
    if (words)
        (void)printf("byte perplexity %.6g, bits per byte %.6g\n", r->byte_perplexity,
                     r->bits_per_byte);
    if (isfinite(r->kl_mean))
        (void)printf("KL to %s: mean %.6g, median %.6g, 99%% %.6g, max %.6g; same top-1 %.2f %%\n",
                     c->o->against, r->kl_mean, r->kl_median, r->kl_p99, r->kl_max, 100 * r->top1);
    return tsr_cli_flush(err);
}

static tsr_status run(struct tsr_cli *cli, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct call c = { .o = opts, .path = args[0] };
    (void)n_args;
    tsr_status st = tsr_cli_registry(cli, &c.registry, err);
    if (st == TSR_OK)
        tsr_registry_set_numerics(c.registry, (uint32_t)c.o->numerics);
    if (st == TSR_OK)
        st = evaluate(&c, err);
    if (st == TSR_OK)
        st = cli->json ? print_json(&c, err) : print_text(&c, err);
    tsr_engine_destroy(c.reference_engine);
    tsr_engine_destroy(c.engine);
    tsr_windows_destroy(c.windows);
    tsr_tokenizer_destroy(c.reference_tokenizer);
    tsr_tokenizer_destroy(c.tokenizer);
    tsr_model_destroy(c.reference);
    tsr_model_destroy(c.model);
    return st;
}

const struct tsr_verb tsr_verb_eval = {
    .name = "eval",
    .summary = "measures perplexity by a named protocol",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "gptq-2048: the text is tokenized once and cut into windows of 2048 tokens (the model's "
        "maximum if less), the rest dropped; a window counts with the mean loss of its positions "
        "times its length. llamacpp-512: windows of 512, the first token of each replaced by BOS, "
        "the second half scored. lm-eval-wikitext: each row is a document, detokenized, in rolling "
        "windows; perplexity is per word of the original.\n"
        "--rows lines splits the text into lines, a blank line being the empty row: with the "
        "default join a row keeps its newline (as WikiText-2 has it), with another it does not "
        "(PTB: --join \" \"). --rows jsonl reads \"text\" of each line.\n"
        "--against MODEL runs a second model over the same tokens and gives the mean KL divergence "
        "from it and how often both rank the same token first.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct eval_options),
    .run = run,
};
