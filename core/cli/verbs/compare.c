/* tessera compare: a comparison file or another job, or the step as a verb on a model. */
#include "cli/jobs.h"

extern const struct tsr_pipeline_step tsr_step_compare;

const struct tsr_verb tsr_verb_compare = {
    .name = "compare",
    .summary = "compares ways to quantize, and models, on the same text and machine",
    .args = "FILE.yaml|MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "FILE.yaml is a comparison (base, arms, measure) or a job with a compare step. "
        "Options given here override those of its compare step. With MODEL, a job of this one "
        "step is run.\n"
        "\n"
        "All arms see the same tokens. Each arm is compared with the original: the difference "
        "of log-perplexity with an interval by windows, KL, top-1 agreement, named tasks "
        "question by question, throughput, and a verdict, corrected over the arms (Holm). An "
        "arm that fails is reported, and the others continue. After an interruption, finished arms "
        "are not run again. Exit code "
        "5: a condition of --fail-if holds.",
    .run = tsr_cli_run_step,
    .jobs = true,
    .step = &tsr_step_compare,
    .own = tsr_cli_folder_options,
    .n_own = 2,
    .files = true,
};
