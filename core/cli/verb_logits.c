/* tessera logits: the logits behind every token, as a safetensors file. */
#include "cli/cli.h"

#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "model/safetensors.h"
#include "pipeline/compensating.h"

#include <stdlib.h>

struct logits_options {
    const char *tokens;
    const char *output;
    const char *backend;
    int64_t     gpu_layers;
    int32_t     step;
    int64_t     act, kv, chunk;

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

#define S struct logits_options
static const struct tsr_option options[] = {
    { .name = "tokens",
      .help = "token ids, separated by commas",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, tokens, const char *) },
    { .name = "output",
      .help = "file to write: F32 tensor 'logits' of [tokens, vocabulary]",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *) },
    TSR_OPTION_BOOL(S, step, 0, "feed one token at a time through the cache"),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, acts, "how activations enter packed weights"),
    TSR_OPTION_ENUM(S, kv, TSR_F32, kvs, "type of the KV cache"),
    TSR_OPTION_INT(S, chunk, 0, 0, 1 << 20, "tokens",
                   "most tokens in one pass; 0 takes the engine's choice"),
    TSR_OPTION_STRING(S, backend, "cpu",
                      "backend that runs the model; auto: cuda if it has a device"),
    TSR_OPTION_INT(
        S, gpu_layers, -1, -1, 1 << 20, "layers",
        "how many layers the backend runs, from the first; the others and the head run on "
        "the CPU; -1: all"),
    TSR_COMPENSATE_OPTIONS(S, compensation, TSR_POSITIONS_ALL),
};
#undef S

/* Runs the tokens as one sequence; logits [n, vocab]. */
static tsr_status run_tokens(struct tsr_engine *e, const uint32_t *ids, uint64_t n, bool step,
                             float *logits, struct tsr_err *err)
{
    uint64_t          vocab = tsr_engine_vocab(e);
    struct tsr_token *t = tsr_new(n, sizeof *t);
    if (!t)
        return tsr_fail_nomem(err, n * sizeof *t, "tokens");
    for (uint64_t i = 0; i < n; i++)
        t[i] = (struct tsr_token){ .id = ids[i], .logits = true };
    tsr_status st = TSR_OK;
    if (!step)
        st = tsr_engine_forward(e, t, n, logits, err);
    for (uint64_t i = 0; step && i < n && st == TSR_OK; i++)
        st = tsr_engine_forward(e, t + i, 1, logits + i * vocab, err);
    free(t);
    return st;
}

static tsr_status write_logits(const char *path, const float *logits, uint64_t n, uint64_t vocab,
                               struct tsr_err *err)
{
    struct tsr_st_out *o = NULL;
    const uint64_t     shape[2] = { n, vocab };
    TSR_TRY(tsr_st_create(&o, path, err));
    tsr_status st = tsr_st_declare(o, "logits", TSR_F32, 2, shape, err);
    if (st == TSR_OK)
        st = tsr_st_begin(o, err);
    if (st != TSR_OK) {
        tsr_st_abort(o);
        return st;
    }
    tsr_st_put(o, logits, n * vocab * sizeof *logits);
    return tsr_st_commit(o, err);
}

static tsr_status with_engine(struct tsr_engine *e, const struct logits_options *o,
                              const uint32_t *ids, uint64_t n, struct tsr_err *err)
{
    uint64_t vocab = tsr_engine_vocab(e), floats;
    float   *logits = tsr_mul(n, vocab, &floats) ? tsr_new_aligned(floats, sizeof *logits) : NULL;
    if (!logits)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: logits of %llu tokens",
                        (unsigned long long)n);
    tsr_status st = run_tokens(e, ids, n, o->step != 0, logits, err);
    if (st == TSR_OK)
        st = write_logits(o->output, logits, n, vocab, err);
    free(logits);
    return st;
}

static tsr_status with_model(struct tsr_registry *r, const struct tsr_model *m,
                             const struct logits_options *o, const uint32_t *ids, uint64_t n,
                             struct tsr_err *err)
{
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = { .backend = o->backend,
                                      .act = (uint32_t)o->act,
                                      .kv_dtype = (uint32_t)o->kv,
                                      .slots = 1,
                                      .context = n,
                                      .chunk = (uint64_t)o->chunk,
                                      .on_backend = (uint64_t)(o->gpu_layers + 1) };
    struct tsr_compensating   c = { 0 };
    tsr_status                st =
        tsr_compensating_open(&c, &o->compensation, NULL, NULL, m, 0, &opt.compensate, err);
    if (st == TSR_OK)
        st = tsr_engine_create(&e, r, m, NULL, &opt, err);
    if (st == TSR_OK)
        st = with_engine(e, o, ids, n, err);
    tsr_engine_destroy(e);
    tsr_compensating_close(&c);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct logits_options *o = opts;
    struct tsr_registry         *r = NULL;
    struct tsr_model            *m = NULL;
    uint32_t                    *ids = NULL;
    uint64_t                     n = 0;
    (void)n_args;
    TSR_TRY(tsr_cli_ids(o->tokens, &ids, &n, err));
    tsr_status st = n ? TSR_OK : tsr_fail(err, TSR_E_INPUT, "--tokens: give at least one token id");
    if (st == TSR_OK)
        st = tsr_cli_registry(c, &r, err);
    if (st == TSR_OK)
        st = tsr_model_load(&m, args[0], false, err);
    if (st == TSR_OK)
        st = with_model(r, m, o, ids, n, err);
    if (st == TSR_OK && c->json)
        st = tsr_cli_print_json(json_pack("{s:s, s:I, s:I}", "output", o->output, "tokens",
                                          (json_int_t)n, "vocabulary", (json_int_t)m->hp.vocab),
                                err);
    tsr_model_destroy(m);
    free(ids);
    return st;
}

const struct tsr_verb tsr_verb_logits = {
    .name = "logits",
    .summary = "writes the logits of a token sequence",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details = "Runs the token ids through MODEL (a Hugging Face folder, a GGUF file or @demo) and "
               "writes the "
               "F32 tensor 'logits' of shape [tokens, vocabulary] to a safetensors file. "
               "Arithmetic is F32 on exactly widened weights. --step gives the same bytes, one "
               "token at a time (long rope excepted: its factors follow the length so far).",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct logits_options),
    .run = run,
};
