/* tessera convert: the step `export`, with the output at -o and no job folder; `tessera export` is the
 * same verb with the step's job-file keys. */
#include "cli/jobs.h"

extern const struct tsr_pipeline_step tsr_step_export;

static const struct tsr_cli_rename renames[] = { { "output", "to" }, { "to", "format" } };

const struct tsr_verb tsr_verb_convert = {
    .name = "convert",
    .summary = "writes the model in another program's format, or prepacked; export: the same verb",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details = "MODEL is anything that runs: a Hugging Face folder, a packed model, @demo. Packed "
               "weights keep their codes and scales if the format has them. The program that owns "
               "the format then computes with these numbers. What a format cannot hold is refused, "
               "with the place and the reason. The output appears under its name only when it is "
               "complete.\n"
               "\n"
               "prepacked is for Tessera: weights are stored as --backend keeps them, and are "
               "mapped, not read. The logits are bit-identical to those of MODEL.\n"
               "\n"
               "The other name takes the keys of the step in a job file, and keeps a job folder: "
               "`tessera export MODEL --format NAME --to FILE|FOLDER`.",
    .run = tsr_cli_run_step,
    .jobs = true,
    .step = &tsr_step_export,
    .renames = renames,
    .n_renames = sizeof renames / sizeof *renames,
    .loose = true,
    .lean = true,
    .alias = true,
};
