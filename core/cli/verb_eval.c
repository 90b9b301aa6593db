/* tessera eval: perplexity by a named protocol, and KL and top-1 against another model. */
#include "cli/eval.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define S struct eval_options
static const struct tsr_option options[] = {
    TSR_EVAL_OPTIONS_TEXT(S, eval, 0),
    TSR_OPTION_STRING(S, against, "",
                      "A model, or a .kld file of llama-perplexity, to compare with on the same "
                      "tokens: KL and top-1."),
    TSR_OPTION_STRING(S, choices, "",
                      "Multiple-choice questions (JSON Lines) instead of a text: accuracy."),
    TSR_OPTION_STRING(S, save_kld, "",
                      "Write the model's log-probabilities as a .kld file; llamacpp-512 alone."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, tsr_act_choices, "How activations enter packed weights."),
    TSR_OPTION_ENUM(S, kv, TSR_F32, tsr_kv_choices, "Type of the KV cache."),
    TSR_OPTION_INT(S, chunk, 0, 0, 1 << 20, "tokens",
                   "Most tokens in one pass; 0 takes the engine's choice."),
    TSR_OPTION_ENUM(S, numerics, TSR_NUMERICS_EXACT, tsr_numerics_choices,
                    "Whether instructions that only some machines have may run."),
    TSR_OPTION_STRING(S, backend, "cpu",
                      "Backend that runs the models; auto: cuda if it has a device."),
    TSR_OPTION_INT(
        S, gpu_layers, -1, -1, 1 << 20, "layers",
        "How many layers the backend runs, from the first; the others and the head run on "
        "the CPU; -1: all."),
    TSR_COMPENSATE_OPTIONS(S, compensation, TSR_POSITIONS_ALL),
    TSR_OPTION_INT(S, simulate_tp, 0, 0, TSR_SPLIT_MAX, "ranks",
                   "Split every row-parallel linear as so many ranks would; 0: none."),
    TSR_OPTION_STRING(S, codec, "",
                      "What partial sums of simulated ranks travel as, with options: "
                      "mx:block=16; default plain F32."),
    TSR_OPTION_ENUM(S, algorithm, TSR_COMM_ALL_GATHER, tsr_algorithm_choices,
                    "How simulated ranks add their partial sums."),
    TSR_OPTION_STRING(S, codec_state, "",
                      "Calibration of the codec, as a job's `calibrate: {codecs: ...}` wrote it."),
};
#undef S

static tsr_status load_tokenizer(struct tsr_tokenizer **t, const char *model, bool optional,
                                 struct tsr_err *err)
{
    char *folder = NULL;
    TSR_TRY(tsr_model_resolve(model, &folder, err));
    tsr_status st = TSR_OK;
    if (!optional || tsr_tokenizer_there(folder))
        st = tsr_tokenizer_load(t, folder, err);
    free(folder);
    return st;
}

static tsr_status load_reference(struct eval_call *c, struct tsr_err *err)
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
    bool agree = true;
    if (c->reference_tokenizer && c->windows)
        TSR_TRY(tsr_windows_agree(c->windows, c->tokenizer, c->reference_tokenizer, &agree, err));
    else if (c->reference_tokenizer)
        agree = strcmp(tsr_tokenizer_hash(c->reference_tokenizer),
                       tsr_tokenizer_hash(c->tokenizer)) == 0;
    if (!agree)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s and %s have different tokenizers; KL needs the same "
                        "tokens",
                        path, c->path);
    if (c->windows && c->windows->window > c->reference->hp.max_positions)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has %llu positions, fewer than the window of %llu; "
                        "give --window",
                        path, (unsigned long long)c->reference->hp.max_positions,
                        (unsigned long long)c->windows->window);
    return TSR_OK;
}

static bool is_kld(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".kld") == 0;
}

/* The text of a base file, under BOS where the tokenizer puts one. */
static tsr_status base_windows(struct eval_call *c, struct tsr_err *err)
{
    struct tsr_ids ids = { 0 };
    const char    *path = c->o->against;
    TSR_TRY(tsr_kld_open(&c->base, path, err));
    if (c->base->vocab != c->model->hp.vocab)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has a vocabulary of %llu, %s of %llu; they cannot be compared", path,
                        (unsigned long long)c->base->vocab, c->path,
                        (unsigned long long)c->model->hp.vocab);
    if (c->base->context > c->model->hp.max_positions)
        return tsr_fail(err, TSR_E_INPUT, "%s has chunks of %llu tokens, %s has %llu positions",
                        path, (unsigned long long)c->base->context, c->path,
                        (unsigned long long)c->model->hp.max_positions);
    TSR_TRY(tsr_tokenize(c->tokenizer, "", 0, TSR_TOKENIZE_SPECIAL, &ids, err));
    bool bos = c->model->hp.bos >= 0 && ids.n && ids.v[0] == (uint32_t)c->model->hp.bos;
    tsr_ids_free(&ids);
    return tsr_kld_windows(c->base, bos ? c->model->hp.bos : -1, (uint64_t)c->o->eval.max_windows,
                           &c->windows, err);
}

struct tsr_engine_options eval_engine_options(const struct eval_call *c, uint64_t context)
{
    return (struct tsr_engine_options){ .backend = c->o->backend,
                                        .act = (uint32_t)c->o->act,
                                        .kv_dtype = (uint32_t)c->o->kv,
                                        .slots = 1,
                                        .context = context,
                                        .chunk = (uint64_t)c->o->chunk,
                                        .on_backend = (uint64_t)(c->o->gpu_layers + 1) };
}

/* The reference is its model as it is: F32 activations, an F32 cache, exact.  Only where it runs, and in what
 * portions, is the model's too. */
struct tsr_engine_options eval_reference_options(const struct eval_call *c, uint64_t context)
{
    struct tsr_engine_options eo = eval_engine_options(c, context);
    eo.exact = true;
    eo.act = TSR_ACT_F32;
    eo.kv_dtype = TSR_F32;
    return eo;
}

/* The model beside the reference, whichever that is, and into a base file if one is wanted. */
static tsr_status run_arms(struct eval_call *c, struct tsr_err *err)
{
    struct tsr_eval_arm *arms = tsr_new(2, sizeof *arms);
    struct tsr_kld_out  *save = NULL;
    uint64_t             n = c->base || c->reference_engine ? 2 : 1;
    if (!arms)
        return tsr_fail_nomem(err, 2 * sizeof *arms, "an evaluation");
    tsr_status st = TSR_OK;
    if (*c->o->save_kld)
        st = tsr_kld_create(&save, c->o->save_kld, c->windows, c->model->hp.vocab, err);
    arms[0] = (struct tsr_eval_arm){ .name = "model", .engine = c->engine, .save = save };
    arms[1] = (struct tsr_eval_arm){ .name = c->o->against,
                                     .engine = c->reference_engine,
                                     .base = c->base };
    if (st == TSR_OK)
        st = tsr_eval_arms(arms, n, 1, tsr_registry_pool(c->registry), c->windows, err);
    if (st == TSR_OK && arms[0].status != TSR_OK)
        st = tsr_fail(err, arms[0].status, "%s", arms[0].error.text);
    c->result = arms[0].result;
    if (st == TSR_OK && n == 2)
        st = tsr_paired_measure(&c->paired, c->windows, &arms[0].at, &arms[1].at, EVAL_ALPHA, err);
    tsr_eval_trace_free(&arms[0].at);
    tsr_eval_trace_free(&arms[1].at);
    free(arms);
    if (st == TSR_OK && save)
        return tsr_kld_commit(save, err);
    tsr_kld_abort(save);
    return st;
}

/* The simulated ranks that were asked for, once the model is there. */
static tsr_status simulate(struct eval_call *c, struct tsr_err *err)
{
    const struct eval_options *o = c->o;
    struct tsr_tp_options      to = { .ranks = (uint32_t)o->simulate_tp,
                                      .codec = o->codec,
                                      .algorithm = (enum tsr_comm_algorithm)o->algorithm };
    if (o->simulate_tp == 0 && (*o->codec || *o->codec_state))
        return tsr_fail(err, TSR_E_INPUT,
                        "--codec is for simulated ranks: give --simulate-tp 2 to %u",
                        TSR_SPLIT_MAX);
    if (o->simulate_tp == 0)
        return TSR_OK;
    if (*o->codec_state) {
        struct tsr_codec_key key = {
            .ranks = to.ranks, .algorithm = to.algorithm, .codec = o->codec, .act = (uint32_t)o->act
        };
        TSR_TRY(tsr_codec_key_model(&key, c->model, NULL, err));
        TSR_TRY(tsr_codec_file_load(&c->codec_file, o->codec_state, &key, err));
        to.states = c->codec_file->states;
        to.n_states = c->codec_file->n;
    }
    TSR_TRY(tsr_tp_open(&c->tp, c->registry, &to, err));
    if (tsr_tp_needs(c->tp))
        return tsr_fail(
            err, TSR_E_INPUT,
            "codec '%s' has to be calibrated: give --codec-state FILE, which a job with "
            "`calibrate: {codecs: ...}` writes",
            o->codec);
    return TSR_OK;
}

/* The model's own engine, with what is compensated and the ranks that it stands for. */
static tsr_status model_engine(struct eval_call *c, struct tsr_engine_options eo,
                               struct tsr_err *err)
{
    TSR_TRY(simulate(c, err));
    eo.split = c->tp ? tsr_tp_split(c->tp) : NULL;
    TSR_TRY(tsr_compensating_open(&c->compensating, &c->o->compensation, NULL, NULL, c->model, 0,
                                  &eo.compensate, err));
    return tsr_engine_create(&c->engine, c->registry, c->model, NULL, &eo, err);
}

static tsr_status reference_engine(struct eval_call *c, uint64_t context, struct tsr_err *err)
{
    struct tsr_engine_options eo = eval_reference_options(c, context);
    return tsr_engine_create(&c->reference_engine, c->registry, c->reference, NULL, &eo, err);
}

static tsr_status evaluate(struct eval_call *c, struct tsr_err *err)
{
    const struct eval_options *o = c->o;
    if (!*o->eval.text && !is_kld(o->against))
        return tsr_fail(err, TSR_E_INPUT, "--text FILE is missing: what to measure on");
    if (*o->eval.text && is_kld(o->against))
        return tsr_fail(err, TSR_E_INPUT, "%s brings its own text; leave --text out", o->against);
    TSR_TRY(tsr_model_load(&c->model, c->path, false, err));
    TSR_TRY(load_tokenizer(&c->tokenizer, c->path, false, err));
    if (is_kld(o->against))
        TSR_TRY(base_windows(c, err));
    else
        TSR_TRY(tsr_eval_keys_windows(&o->eval, o->eval.text, c->tokenizer, c->model, &c->windows,
                                      err));
    if (*o->against && !c->base)
        TSR_TRY(load_reference(c, err));
    TSR_TRY(model_engine(c, eval_engine_options(c, c->windows->window), err));
    if (c->reference)
        TSR_TRY(reference_engine(c, c->windows->window, err));
    return run_arms(c, err);
}

/* ---- multiple choice ---------------------------------------------------------------------- */

static tsr_status answer(struct eval_call *c, struct tsr_err *err)
{
    uint64_t context;
    TSR_TRY(
        tsr_choices_context(c->choices, c->tokenizer, c->model->hp.max_positions, &context, err));
    TSR_TRY(model_engine(c, eval_engine_options(c, context), err));
    return tsr_choices_score(c->engine, c->tokenizer, c->choices, &c->marks, err);
}

static tsr_status answer_reference(struct eval_call *c, struct tsr_err *err)
{
    uint64_t context, max = c->reference->hp.max_positions;
    TSR_TRY(tsr_choices_context(c->choices, c->tokenizer, max, &context, err));
    TSR_TRY(reference_engine(c, context, err));
    return tsr_choices_score(c->reference_engine, c->tokenizer, c->choices, &c->reference_marks,
                             err);
}

static tsr_status ask(struct eval_call *c, struct tsr_err *err)
{
    const struct eval_options *o = c->o;
    if (*o->eval.text || *o->save_kld || is_kld(o->against))
        return tsr_fail(err, TSR_E_INPUT,
                        "--choices is about questions; ask for the text in a call of its own");
    TSR_TRY(tsr_choices_load(&c->choices, o->choices, err));
    TSR_TRY(tsr_model_load(&c->model, c->path, false, err));
    TSR_TRY(load_tokenizer(&c->tokenizer, c->path, false, err));
    if (*o->against)
        TSR_TRY(load_reference(c, err));
    TSR_TRY(answer(c, err));
    return c->reference ? answer_reference(c, err) : TSR_OK;
}

static tsr_status run(struct tsr_cli *cli, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct eval_call c = { .o = opts, .path = args[0] };
    (void)n_args;
    tsr_status st = tsr_cli_registry(cli, &c.registry, err);
    if (st == TSR_OK)
        tsr_registry_set_numerics(c.registry, (uint32_t)c.o->numerics);
    if (st == TSR_OK)
        st = *c.o->choices ? ask(&c, err) : evaluate(&c, err);
    if (st == TSR_OK && cli->json)
        st = eval_print_json(&c, err);
    else if (st == TSR_OK)
        st = eval_print_text(&c, err);
    tsr_choice_marks_free(&c.marks);
    tsr_choice_marks_free(&c.reference_marks);
    tsr_choices_destroy(c.choices);
    tsr_kld_close(c.base);
    tsr_engine_destroy(c.reference_engine);
    tsr_engine_destroy(c.engine);
    tsr_compensating_close(&c.compensating);
    tsr_tp_close(c.tp);
    tsr_codec_file_free(c.codec_file);
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
        "from it and how often both rank the same token first. The second model runs as it is, "
        "with "
        "F32 activations, an F32 cache and exact numerics: --act, --kv, --numerics, --compensate "
        "and "
        "--simulate-tp are the first one's. A .kld file is such a model's "
        "log-probabilities with their text, as llama-perplexity writes and --save-kld too.\n"
        "--choices FILE asks multiple-choice questions instead, {\"context\", \"choices\", "
        "\"answer\"} a line: the likeliest choice behind the context is the model's; with "
        "--against "
        "both are asked and compared by McNemar's exact test.\n"
        "--simulate-tp N splits o and down of every layer into the columns of N ranks inside this "
        "process and adds what they give through --codec, as the ranks would: the same bytes where "
        "N ranks can share the model.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct eval_options),
    .run = run,
};
