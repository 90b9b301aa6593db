/* tessera eval: the step, on a model of the command line. */
#include "cli/jobs.h"

extern const struct tsr_pipeline_step tsr_step_eval;

static const struct tsr_cli_rename renames[] = { { "task", "tasks" }, { "num_fewshot", "shots" } };

const struct tsr_verb tsr_verb_eval = {
    .name = "eval",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "gptq-2048         the text is tokenized once and cut into windows of 2048 tokens "
        "(less if the model's maximum is less). The rest is dropped. A window counts with the "
        "mean loss of its positions times its length.\n"
        "llamacpp-512      windows of 512. BOS replaces the first token of each, and the "
        "second half is scored.\n"
        "lm-eval-wikitext  each row is a document, detokenized, in rolling windows. "
        "Perplexity is per word of the original.\n"
        "\n"
        "--rows lines splits the text into lines; a blank line is the empty row. With the "
        "default join a row keeps its newline, as WikiText-2 has it. With another join it "
        "does not (PTB: --join \" \"). --rows jsonl reads \"text\" of each line.\n"
        "\n"
        "--against MODEL runs a second model over the same tokens. It gives the mean KL "
        "divergence from that model and how often both rank the same token first. The second "
        "model runs as it is, with F32 activations, an F32 cache and exact numerics. --act, "
        "--kv, --numerics, --compensate and --simulate-tp apply to the first model only. A "
        ".kld file holds the log-probabilities of a model with their text. llama-perplexity "
        "writes these files, and --save-kld too.\n"
        "\n"
        "--choices FILE runs multiple-choice questions instead, {\"context\", \"choices\", "
        "\"answer\"} per line. The model's answer is the likeliest choice after the context. "
        "With --against, both models answer and are compared by McNemar's exact test.\n"
        "\n"
        "--task NAME,NAME runs named tasks as lm-evaluation-harness does: arc_easy, "
        "arc_challenge, hellaswag, piqa, winogrande, openbookqa, boolq, sciq, truthfulqa_mc1, "
        "lambada_openai, mmlu, wikitext. FILE.yaml adds a task. The rows come from --data PATH: "
        "a JSON Lines file, or a folder with NAME/SPLIT.jsonl or NAME/docs.jsonl. Without it they "
        "come "
        "from the hub's cache. Nothing is downloaded.\n"
        "\n"
        "--simulate-tp N splits o and down of every layer into the columns of N ranks inside "
        "this process. The partial sums go through --codec, as on real ranks. Where N ranks "
        "can share the model, the result is bit-identical to "
        "theirs.",
    .run = tsr_cli_run_step,
    .jobs = true,
    .step = &tsr_step_eval,
    .renames = renames,
    .n_renames = sizeof renames / sizeof *renames,
    .loose = true,
};
