/* tessera logits: the step, on a model of the command line. */
#include "cli/jobs.h"

extern const struct tsr_pipeline_step tsr_step_logits;

const struct tsr_verb tsr_verb_logits = {
    .name = "logits",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Runs the token ids through MODEL (a Hugging Face folder, a GGUF file or @demo). "
        "Writes the F32 tensor 'logits' of shape [tokens, vocabulary] to a safetensors file. "
        "Arithmetic is F32 on exactly widened weights. --step feeds one token at a time; the "
        "result is bit-identical, except for long rope, whose factors depend on the length so "
        "far. --by-layers reads one layer after the other, for a model larger than the memory; the "
        "result is bit-identical.",
    .run = tsr_cli_run_step,
    .jobs = true,
    .step = &tsr_step_logits,
    .loose = true,
};
