/* tessera rotate: the step `rotate`, with the output at -o and no job folder. */
#include "cli/jobs.h"

extern const struct tsr_pipeline_step tsr_step_rotate;

static const struct tsr_cli_rename renames[] = { { "output", "to" } };

const struct tsr_verb tsr_verb_rotate = {
    .name = "rotate",
    .summary = "writes a model with rotated weights and the same function",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "MODEL is an original, not a packed model. Norm gains go into the linears that read "
        "the norm, and the hidden state and the values of heads are expressed in a rotated "
        "basis (QuaRot and SpinQuant: R1 and R2). The logits stay, to F32 rounding. "
        "Outliers of single channels spread over all channels, so quantized weights and "
        "activations lose less.\n"
        "\n"
        "--online adds transforms that run with the model (R3 and R4): of queries and keys, and of "
        "the inputs of down_proj. Only tessera runs that model.\n"
        "\n"
        "Models whose norms subtract a mean or stand after sub-layers are refused. A tied "
        "LM head becomes a separate matrix. The folder appears under its name only when "
        "it is complete.",
    .run = tsr_cli_run_step,
    .jobs = true,
    .step = &tsr_step_rotate,
    .renames = renames,
    .n_renames = sizeof renames / sizeof *renames,
    .loose = true,
    .lean = true,
};
