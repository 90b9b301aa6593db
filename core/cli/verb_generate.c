/* tessera generate: continues a prompt. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "model/chat.h"
#include "pipeline/compensating.h"

#include <stdlib.h>
#include <string.h>

struct generate_options {
    const char *tokens, *prompt, *system;
    const char *backend;
    int64_t     gpu_layers;
    int64_t     max_tokens;
    int32_t     greedy, ignore_eos, chat;
    double      temperature, top_p, repetition_penalty;
    int64_t     top_k, seed;
    int64_t     act, kv, chunk, numerics;

    struct tsr_compensate_keys compensation;
};

static const struct tsr_choice acts[] = {
    { "f32", "activations as they are", TSR_ACT_F32 },
    { "a16", "rounded to BF16", TSR_ACT_A16 },
    { "a8", "int8 with a scale per block of columns", TSR_ACT_A8 },
};
static const struct tsr_choice kvs[] = {
    { "f32", "F32 cache", TSR_F32 },
    { "f16", "F16 cache", TSR_F16 },
    { "int8", "int8 cache, a scale per head and token", TSR_I8 },
};

#define S struct generate_options
static const struct tsr_option options[] = {
    TSR_OPTION_STRING(S, tokens, "", "token ids of the prompt, separated by commas"),
    TSR_OPTION_STRING(S, prompt, "", "text of the prompt"),
    TSR_OPTION_BOOL(S, chat, 0,
                    "the prompt is a user's message; it is put into the model's chat template"),
    TSR_OPTION_STRING(S, system, "", "with --chat: a system message in front of it"),
    TSR_OPTION_INT(S, max_tokens, 64, 0, INT64_C(1) << 31, "tokens", "most new tokens"),
    TSR_OPTION_BOOL(S, greedy, 0, "take the best token each time; the same as --temperature 0"),
    TSR_OPTION_BOOL(S, ignore_eos, 0, "go on behind an end-of-sequence token"),
    TSR_OPTION_REAL(S, temperature, 1.0, 0.0, 100.0, NULL,
                    "flattens (above 1) or sharpens (below 1) the distribution"),
    TSR_OPTION_INT(S, top_k, 0, 0, INT64_C(1) << 31, "tokens",
                   "draw from the k best tokens only; 0 takes all"),
    TSR_OPTION_REAL(S, top_p, 1.0, 1e-9, 1.0, NULL,
                    "draw from the fewest tokens that hold this much probability"),
    TSR_OPTION_REAL(S, repetition_penalty, 1.0, 1e-3, 1e3, NULL,
                    "divides (multiplies, if negative) the logits of tokens seen before"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL, "seed of the draws"),
    TSR_OPTION_ENUM(S, act, TSR_ACT_A8, acts,
                    "how activations enter packed weights; others always take f32"),
    TSR_OPTION_ENUM(S, kv, TSR_F32, kvs, "type of the KV cache"),
    TSR_OPTION_INT(S, chunk, 0, 0, 1 << 20, "tokens",
                   "most tokens in one pass; 0 takes the engine's choice"),
    TSR_OPTION_ENUM(S, numerics, TSR_NUMERICS_EXACT, tsr_numerics_choices,
                    "whether instructions that only some machines have may run"),
    TSR_OPTION_STRING(S, backend, "cpu",
                      "backend that runs the model; auto: cuda if it has a device"),
    TSR_OPTION_INT(
        S, gpu_layers, -1, -1, 1 << 20, "layers",
        "how many layers the backend runs, from the first; the others and the head run on "
        "the CPU; -1: all"),
    TSR_COMPENSATE_OPTIONS(S, compensation, TSR_POSITIONS_DECODE),
};
#undef S

/* One call of the verb. */
struct generation {
    const struct generate_options *o;
    bool                           json;
    struct tsr_model              *model;
    struct tsr_tokenizer          *tokenizer; /* NULL: the folder has none */
    struct tsr_chat               *chat;      /* with --chat */
    struct tsr_ids                 prompt;
    uint32_t                      *tokens;
    uint64_t                       n_tokens;
    /* text as it comes, without --json */
    struct tsr_detok *stream;
    struct tsr_text   piece;
    tsr_status        failed; /* of printing; the sentence is in err */
    struct tsr_err   *err;
};

/* The tokenizer of the model's folder.  It may be missing unless text has to be read. */
static tsr_status load_tokenizer(struct generation *g, const char *model, struct tsr_err *err)
{
    char *folder = NULL;
    TSR_TRY(tsr_model_resolve(model, &folder, err));
    tsr_status st = TSR_OK;
    if (*g->o->prompt || tsr_tokenizer_there(folder))
        st = tsr_tokenizer_load(&g->tokenizer, folder, err);
    if (st == TSR_OK && g->o->chat)
        st = tsr_chat_load(&g->chat, folder, g->tokenizer, err);
    free(folder);
    return st;
}

/* Special strings in what is typed are plain text, as in a batch. */
static tsr_status read_chat(struct generation *g, struct tsr_err *err)
{
    const struct generate_options *o = g->o;
    struct tsr_chat_message        m[2] = { { "system", o->system, strlen(o->system) },
                                            { "user", o->prompt, strlen(o->prompt) } };
    uint64_t                       first = *o->system ? 0 : 1;
    return tsr_chat_render(g->chat, m + first, 2 - first, false, &g->prompt, err);
}

static tsr_status read_prompt(struct generation *g, struct tsr_err *err)
{
    const struct generate_options *o = g->o;
    if (!*o->prompt && !*o->tokens)
        return tsr_fail(err, TSR_E_INPUT, "there is no prompt; give --tokens or --prompt");
    if (o->chat)
        TSR_TRY(read_chat(g, err));
    else if (*o->prompt)
        TSR_TRY(tsr_tokenize(g->tokenizer, o->prompt, strlen(o->prompt), TSR_TOKENIZE_SPECIAL,
                             &g->prompt, err));
    else
        TSR_TRY(tsr_cli_ids(o->tokens, &g->prompt.v, &g->prompt.n, err));
    if (g->prompt.n == 0)
        return tsr_fail(err, TSR_E_INPUT, "--prompt: the text has no tokens");
    return TSR_OK;
}

static tsr_status print_piece(struct generation *g)
{
    if (g->piece.n && fwrite(g->piece.v, 1, g->piece.n, stdout) != g->piece.n)
        return tsr_fail(g->err, TSR_E_IO, "stdout: cannot write");
    g->piece.n = 0;
    return tsr_cli_flush(g->err);
}

/* tsr_request.on_token: the text that the new token makes certain, or its id. */
static tsr_status on_token(void *ctx, uint64_t request, uint32_t id)
{
    struct generation *g = ctx;
    (void)request;
    if (g->stream) {
        g->failed = tsr_detok_push(g->stream, id, &g->piece, g->err);
    } else {
        char number[16];
        int  n = snprintf(number, sizeof number, "%u\n", id);
        g->failed = tsr_text_append(&g->piece, number, (uint64_t)n, g->err);
    }
    if (g->failed == TSR_OK)
        g->failed = print_piece(g);
    return g->failed;
}

static tsr_status end_stream(struct generation *g)
{
    TSR_TRY(g->failed);
    if (g->stream) {
        TSR_TRY(tsr_detok_flush(g->stream, &g->piece, g->err));
        TSR_TRY(tsr_text_append(&g->piece, "\n", 1, g->err));
    }
    return print_piece(g);
}

static tsr_status print_result(struct generation *g, struct tsr_err *err)
{
    struct tsr_text text = { 0 };
    json_t         *out = json_object(), *ids = json_array(), *string = NULL;
    tsr_status      st = TSR_OK;
    for (uint64_t i = 0; i < g->n_tokens; i++)
        (void)json_array_append_new(ids, json_integer(g->tokens[i]));
    if (g->tokenizer) {
        st = tsr_detokenize(g->tokenizer, g->tokens, g->n_tokens, true, &text, err);
        string = json_stringn(text.n ? text.v : "", text.n);
    } else {
        string = json_null();
    }
    if (st == TSR_OK && (json_array_size(ids) != g->n_tokens || !string))
        st = tsr_fail_nomem(err, g->n_tokens, "the result");
    bool whole = json_object_set_new(out, "tokens", ids) == 0;
    whole = json_object_set_new(out, "text", string) == 0 && whole;
    tsr_text_free(&text);
    if (st != TSR_OK || !whole) {
        json_decref(out);
        return st != TSR_OK ? st : tsr_fail_nomem(err, g->n_tokens, "the result");
    }
    return tsr_cli_print_json(out, err);
}

static tsr_status run_request(struct generation *g, struct tsr_engine *e, struct tsr_err *err)
{
    const struct generate_options *o = g->o;
    struct tsr_request             q = { .prompt = g->prompt.v,
                                         .n_prompt = g->prompt.n,
                                         .max_tokens = (uint64_t)o->max_tokens,
                                         .ignore_eos = o->ignore_eos != 0,
                                         .sampling = { .temperature = o->greedy ? 0 : o->temperature,
                                                       .top_k = (uint64_t)o->top_k,
                                                       .top_p = o->top_p,
                                                       .repetition_penalty = o->repetition_penalty,
                                                       .seed = (uint64_t)o->seed },
                                         .tokens = g->tokens };
    g->err = err;
    if (!g->json) {
        q.on_token = on_token;
        q.ctx = g;
        if (g->tokenizer)
            TSR_TRY(tsr_detok_create(&g->stream, g->tokenizer, true, err));
    }
    struct tsr_generate_timing t;
    TSR_TRY(tsr_generate(e, &q, 1, &t, err));
    g->n_tokens = q.n_tokens;
    tsr_logf(TSR_LOG_INFO, "%llu prompt tokens in %.3f s, %llu decode steps in %.3f s on %s",
             (unsigned long long)t.prefill_tokens, t.prefill_s, (unsigned long long)t.decode_tokens,
             t.decode_s, tsr_engine_device(e));
    return g->json ? print_result(g, err) : end_stream(g);
}

static tsr_status generate(struct generation *g, struct tsr_registry *r, struct tsr_err *err)
{
    const struct generate_options *o = g->o;
    struct tsr_engine             *e = NULL;
    uint64_t                       max = (uint64_t)o->max_tokens;
    struct tsr_engine_options      opt = { .backend = o->backend,
                                           .act = (uint32_t)o->act,
                                           .kv_dtype = (uint32_t)o->kv,
                                           .slots = 1,
                                           .context = g->prompt.n + (max ? max - 1 : 0),
                                           .chunk = (uint64_t)o->chunk,
                                           .on_backend = (uint64_t)(o->gpu_layers + 1) };
    g->tokens = tsr_new(max, sizeof *g->tokens);
    if (!g->tokens)
        return tsr_fail_nomem(err, max * sizeof *g->tokens, "new tokens");
    struct tsr_compensating c = { 0 };
    tsr_status              st = tsr_compensating_open(&c, &o->compensation, NULL, NULL, g->model,
                                                       (uint64_t)o->seed, &opt.compensate, err);
    if (st == TSR_OK)
        st = tsr_engine_create(&e, r, g->model, NULL, &opt, err);
    if (st == TSR_OK)
        st = run_request(g, e, err);
    tsr_engine_destroy(e);
    tsr_compensating_close(&c);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct generation    g = { .o = opts, .json = c->json };
    struct tsr_registry *r = NULL;
    (void)n_args;
    if (*g.o->tokens && *g.o->prompt)
        return tsr_fail(err, TSR_E_INPUT, "give --tokens or --prompt, not both");
    if (g.o->chat && !*g.o->prompt)
        return tsr_fail(err, TSR_E_INPUT, "--chat wants the message as --prompt");
    if (*g.o->system && !g.o->chat)
        return tsr_fail(err, TSR_E_INPUT, "--system wants --chat");
    tsr_status st = load_tokenizer(&g, args[0], err);
    if (st == TSR_OK)
        st = read_prompt(&g, err);
    if (st == TSR_OK)
        st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK)
        tsr_registry_set_numerics(r, (uint32_t)g.o->numerics);
    if (st == TSR_OK)
        st = tsr_model_load(&g.model, args[0], false, err);
    if (st == TSR_OK)
        st = generate(&g, r, err);
    tsr_detok_destroy(g.stream);
    tsr_text_free(&g.piece);
    tsr_ids_free(&g.prompt);
    free(g.tokens);
    tsr_chat_destroy(g.chat);
    tsr_tokenizer_destroy(g.tokenizer);
    tsr_model_destroy(g.model);
    return st;
}

const struct tsr_verb tsr_verb_generate = {
    .name = "generate",
    .summary = "continues a prompt",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details = "Continues a prompt, given as text or as token ids, with MODEL (a Hugging Face "
               "folder or @demo). New text goes to stdout as it comes; with --json, "
               "{\"tokens\": [...], \"text\": \"...\"} with the new tokens only, and null for "
               "the text where the folder has no tokenizer. Draws depend on the seed and on the "
               "token's number alone, so the same command always gives the same text.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct generate_options),
    .run = run,
};
