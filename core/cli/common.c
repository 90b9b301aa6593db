/* The options that every verb has. */
#include "cli/args.h"

#include "pipeline/running.h"

static const struct tsr_choice color_choices[] = {
    { "auto", "when standard error is a terminal and NO_COLOR is not set", TSR_CLI_COLOR_AUTO },
    { "always", "also into files and pipes", TSR_CLI_COLOR_ALWAYS },
    { "never", "plain text", TSR_CLI_COLOR_NEVER },
};

const struct tsr_option tsr_common_options[] = {
    TSR_OPTION_BOOL(struct tsr_cli_common, json, 0, "print the result as JSON"),
    TSR_PIPELINE_THREADS_OPTION(struct tsr_cli_common, threads, 0),
    TSR_OPTION_REPEAT(struct tsr_cli_common, plugin_path, "PATH",
                      "a plugin or a folder of plugins, searched first; may be repeated"),
    TSR_OPTION_PATH(struct tsr_cli_common, hf_cache, "", "FOLDER",
                    "the hub's cache for hf:ORG/NAME; default ~/.cache/huggingface/hub"),
    TSR_OPTION_REPEAT(struct tsr_cli_common, family, "FILE",
                      "a model family, as in configs/families; may be repeated"),
    TSR_OPTION_REPEAT(struct tsr_cli_common, set, "KEY=VALUE",
                      "override a key of the job, as in quantize.bits=3; may be repeated"),
    TSR_OPTION_BOOL(struct tsr_cli_common, quiet, 0, "no progress on standard error"),
    TSR_OPTION_BOOL(struct tsr_cli_common, verbose, 0, "say more; twice says most"),
    TSR_OPTION_ENUM(struct tsr_cli_common, color, TSR_CLI_COLOR_AUTO, color_choices,
                    "colour of messages"),
    TSR_OPTION_BOOL(struct tsr_cli_common, help, 0, "print this and stop"),
    TSR_OPTION_BOOL(struct tsr_cli_common, help_all, 0, "the same with rarely used options"),
    TSR_OPTION_BOOL(struct tsr_cli_common, version, 0, "print name, version and ABI, and stop"),
};
const uint64_t tsr_n_common_options = sizeof tsr_common_options / sizeof *tsr_common_options;
