/* generate: continues prompts with the model as the steps before left it. */
#include "pipeline/steps/generate_step.h"

#include "pipeline/sampling.h"

#define S struct generate_keys
static const struct tsr_option options[] = {
    TSR_OPTION_NODE(S, prompts, "List of texts to continue."),
    { .name = "tokens",
      .help = "Token ids of one prompt, separated by commas.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID | TSR_OPT_LIST,
      .offset = TSR_FIELD(S, tokens, const char *),
      .def = { .s = "" } },
    { .name = "prompt",
      .help = "Text of one prompt.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, prompt, const char *),
      .def = { .s = "" } },
    { .name = "chat",
      .help = "The prompt is a user's message; it is put into the model's chat template.",
      .type = TSR_OPT_BOOL,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, chat, int32_t) },
    { .name = "system",
      .help = "With chat: a system message in front of it.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, system, const char *),
      .def = { .s = "" } },
    TSR_PIPELINE_CHAT_OPTIONS(S, talk),
    { .name = "greedy",
      .help = "Take the best token each time; the same as temperature 0.",
      .type = TSR_OPT_BOOL,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, greedy, int32_t) },
    { .name = "ignore_eos",
      .help = "Continue after an end-of-sequence token.",
      .type = TSR_OPT_BOOL,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, ignore_eos, int32_t) },
    TSR_PIPELINE_SAMPLE_OPTIONS(S, sample, 0),
    TSR_PIPELINE_DRAFT_OPTIONS(S, drafting),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL, "Seed of the draws; -1: the job's."),
    TSR_PIPELINE_RUNNING_OPTIONS(S, run, TSR_ACT_A8, TSR_PIPELINE_POSITIONS_DECODE, TSR_OPT_UNSAID),
};
#undef S

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct generate_keys *o = opts;
    int                         ways = (o->prompts != NULL) + (*o->prompt != 0) + (*o->tokens != 0);
    if (ways == 0)
        tsr_config_diag_error(d, &node->mark, "give prompts, prompt or tokens",
                              "there is no prompt");
    if (ways > 1)
        tsr_config_diag_error(d, &node->mark, NULL,
                              "give one of prompts, prompt and tokens, not both");
    if (o->chat && !*o->prompt)
        tsr_config_diag_error(d, &node->mark, NULL, "'chat' needs the message in 'prompt'");
    if (*o->system && !o->chat)
        tsr_config_diag_error(d, &node->mark, NULL, "'system' needs 'chat'");
    if (*o->talk.template && !o->chat)
        tsr_config_diag_error(d, &node->mark, NULL, "'template' needs 'chat'");
    tsr_pipeline_chat_check(&o->talk, node, d);
    tsr_pipeline_draft_check(job, &o->drafting, node, d);
    tsr_pipeline_check_strings(o->prompts, "prompts", d);
    return tsr_pipeline_samplers_check(job, o->sample.samplers, d, err);
}

static void print(const json_t *r, FILE *to)
{
    const json_t *t, *text = json_object_get(r, "text"); /* which may hold a NUL character */
    size_t        i;
    if (json_is_string(text)) {
        (void)fwrite(json_string_value(text), 1, json_string_length(text), to);
        (void)fputc('\n', to);
    } else if (text) {
        json_array_foreach (json_object_get(r, "tokens"), i, t)
            (void)fprintf(to, "%lld\n", (long long)json_integer_value(t));
    }
    json_array_foreach (json_object_get(r, "samples"), i, t) {
        text = json_object_get(t, "text");
        (void)fputs(json_string_value(json_object_get(t, "prompt")), to);
        (void)fwrite(json_string_value(text), 1, json_string_length(text), to);
        (void)fputc('\n', to);
    }
}

static tsr_status many(struct tsr_pipeline_job *job, const struct generate_keys *o, uint64_t seed,
                       json_t **result, struct tsr_err *err)
{
    json_t                         *texts = json_array(), *j = json_object();
    uint64_t                        ran[3] = { 0 };
    struct tsr_pipeline_running     how = { 0 };
    struct tsr_pipeline_sample_keys sample = o->sample;
    struct tsr_engine_drafted       drafts = { 0 };
    sample.drafting = &o->drafting;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "step 'generate'", err));
    if (!tsr_pipeline_json_put(j, "samples", texts)) { /* j holds it from here */
        json_decref(j);
        return tsr_fail_nomem(err, 0, "the results");
    }
    tsr_status st =
        tsr_pipeline_running_open(&how, job, &o->run, job->model, job->packed, seed, err);
    if (st == TSR_OK)
        st = tsr_pipeline_sample_texts(job, job->model, job->overlay, o->prompts, &sample,
                                       o->ignore_eos != 0, seed, &how.eo, texts, ran, &drafts, err);
    if (st == TSR_OK)
        st = tsr_pipeline_running_unchanged(&how, err);
    if (st == TSR_OK && (!tsr_pipeline_json_put_act(j, (uint32_t)o->run.act, ran) ||
                         !tsr_pipeline_draft_put(j, &o->drafting, &drafts)))
        st = tsr_fail_nomem(err, 0, "the results");
    tsr_pipeline_running_close(&how);
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    if (!job->json)
        print(j, stdout);
    *result = j;
    return TSR_OK;
}

/* Of the verb: what the command line does not state is the model's, else a plain draw.  A job that is to repeat takes the
 * best token. */
static tsr_status take_model(struct tsr_pipeline_job *job, const struct tsr_config_node *node,
                             struct tsr_pipeline_sample_keys *k, struct tsr_err *err)
{
    struct tsr_engine_sampling s = { k->temperature, (uint64_t)k->top_k,    k->top_p,
                                     k->min_p,       k->repetition_penalty, 0 };
    if (!tsr_config_node_get(node, "temperature"))
        s.temperature = 1;
    TSR_TRY(tsr_pipeline_sampling(job, node, &s, err));
    k->temperature = s.temperature;
    k->top_k = (int64_t)s.top_k;
    k->top_p = s.top_p;
    k->min_p = s.min_p;
    k->repetition_penalty = s.repetition_penalty;
    return TSR_OK;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct generate_keys o = *(const struct generate_keys *)opts;
    uint64_t             seed = o.seed < 0 ? job->seed : (uint64_t)o.seed;
    json_t              *j = NULL;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    if (job->loose && !o.greedy)
        TSR_TRY(take_model(job, node, &o.sample, err));
    if (o.greedy)
        o.sample.temperature = 0;
    TSR_TRY(o.prompts ? many(job, &o, seed, &j, err) : generate_one(job, &o, seed, &j, err));
    return tsr_pipeline_step_result(job, "generate", j, err);
}

const struct tsr_pipeline_step tsr_step_generate = {
    .name = "generate",
    .summary = "continues prompts",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct generate_keys),
    .check = check,
    .run = run,
    .print = print,
};
