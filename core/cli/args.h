/* cli/args.h - a command line against the option tables. */
#ifndef TSR_CLI_ARGS_H
#define TSR_CLI_ARGS_H

#include "cli/cli.h"

enum tsr_color { TSR_CLI_COLOR_AUTO, TSR_CLI_COLOR_ALWAYS, TSR_CLI_COLOR_NEVER };

/* Options of every verb. */
struct tsr_cli_common {
    int32_t                json, quiet, verbose, help, help_all, version;
    int64_t                threads, color;
    const char            *hf_cache;
    struct tsr_cli_strings plugin_path, family, set;
};
extern const struct tsr_option tsr_common_options[];
extern const uint64_t          tsr_n_common_options;

struct tsr_cli_args {
    struct tsr_cli_common  common;
    const struct tsr_verb *verb; /* NULL: the line names none */
    void                  *opts; /* options_size bytes, or a struct tsr_cli_strings of a step */
    char                 **args; /* positional arguments; points into argv */
    int                    n_args;
};

/* Parses argv[1..]. Call tsr_cli_args_free() even after an error; common.json holds the options parsed so
 * far. Checks required options and the number of arguments, except with --help or --version. */
tsr_status tsr_cli_args_parse(struct tsr_cli_args *a, int argc, char **argv, struct tsr_err *err);
void       tsr_cli_args_free(struct tsr_cli_args *a);

/* "plugin_path" -> "plugin-path" */
void tsr_cli_option_flag(const char *name, char *buf, size_t cap);
/* The one-letter form, or 0. */
char tsr_cli_option_short(const char *name);

#endif
