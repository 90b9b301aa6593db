/* tessera generate: the step, on one prompt of the command line. */
#include "cli/jobs.h"

extern const struct tsr_pipeline_step tsr_step_generate;

/* A conversation is drawn, which the step does for this verb; a job that is to repeat takes the best token. */
static const char *const presets[] = { "max_tokens=64", NULL };
static const char *const stated[] = { "temperature=1", NULL };

const struct tsr_verb tsr_verb_generate = {
    .name = "generate",
    .summary = "continues a prompt",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Continues a prompt, given as text or as token ids, with MODEL (a Hugging Face "
        "folder or @demo). New text goes to stdout as it comes; with --json, "
        "{\"tokens\": [...], \"text\": \"...\"} with the new tokens only, and null for "
        "the text where the folder has no tokenizer. Draws depend on the seed and on the "
        "token's number alone, so the same command always gives the same text. Sampling options "
        "that are not given are those of the model's generation_config.json, if it has "
        "them.",
    .run = tsr_cli_run_step,
    .jobs = true,
    .step = &tsr_step_generate,
    .presets = presets,
    .stated = stated,
    .loose = true,
};
