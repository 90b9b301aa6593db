/* generate: continues prompts with the model as the steps before left it. */
#include "pipeline/sample.h"

struct generate_options {
    const struct tsr_node *prompts;
    struct tsr_sample_keys sample;
    int64_t                seed;
};

#define S struct generate_options
static const struct tsr_option options[] = {
    { .name = "prompts",
      .help = "List of texts to continue.",
      .type = TSR_OPT_NODE,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, prompts, const struct tsr_node *) },
    TSR_SAMPLE_OPTIONS(S, sample),
    TSR_OPTION_INT(S, seed, -1, -1, INT64_MAX, NULL, "Seed of the draws; -1: the job's."),
};
#undef S

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    const struct generate_options *o = opts;
    (void)job;
    (void)node;
    (void)err;
    tsr_check_strings(o->prompts, "prompts", d);
    return TSR_OK;
}

static void print(const json_t *r, FILE *to)
{
    const json_t *t;
    size_t        i;
    json_array_foreach (json_object_get(r, "samples"), i, t) {
        const json_t *text = json_object_get(t, "text"); /* which may hold a NUL character */
        (void)fputs(json_string_value(json_object_get(t, "prompt")), to);
        (void)fwrite(json_string_value(text), 1, json_string_length(text), to);
        (void)fputc('\n', to);
    }
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    const struct generate_options *o = opts;
    (void)node;
    TSR_TRY(tsr_step_need_tokenizer(job, "step 'generate'", err));
    json_t  *texts = json_array(), *j = json_object();
    uint64_t ran[3] = { 0 };
    if (!tsr_json_put(j, "samples", texts)) { /* j holds it from here */
        json_decref(j);
        return tsr_fail_nomem(err, 0, "the results");
    }
    tsr_status st = tsr_sample_texts(job, job->model, job->overlay, o->prompts, &o->sample,
                                     o->seed < 0 ? job->seed : (uint64_t)o->seed, texts, ran, err);
    if (st == TSR_OK && !tsr_json_put_act(j, (uint32_t)o->sample.act, ran))
        st = tsr_fail_nomem(err, 0, "the results");
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    if (!job->json)
        print(j, stdout);
    return tsr_step_result(job, "generate", j, err);
}

const struct tsr_step tsr_step_generate = {
    .name = "generate",
    .summary = "continues prompts",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct generate_options),
    .check = check,
    .run = run,
    .print = print,
};
