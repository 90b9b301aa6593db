/* cli/cli.h - verbs of the program as tables.  The same table parses the arguments, prints
 * --help, and fills the man pages, so they cannot disagree.
 *
 * A verb is one file cli/verb_<name>.c that defines `const struct tsr_verb tsr_verb_<name>`;
 * cli/main.c lists them.  stdout is data, stderr is talk.
 */
#ifndef TSR_CLI_CLI_H
#define TSR_CLI_CLI_H

#include "config/config.h"
#include "plugin/registry.h"

/* What every verb can reach.  Created lazily: --help touches no plugin and starts no thread. */
struct tsr_cli {
    bool     json, quiet, colour;
    uint32_t threads;                  /* 0: all CPUs */
    const char *const *plugin_paths;
    uint64_t n_plugin_paths;
    const char *const *sets;           /* --set a.b=c */
    uint64_t n_sets;
    struct tsr_pool     *pool;
    struct tsr_registry *registry;
};
/* Pool and registry, made on first use; freed by main. */
tsr_status tsr_cli_registry(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err);

struct tsr_verb {
    const char *name;                  /* "logits" */
    const char *summary;               /* one line */
    const char *args;                  /* "MODEL", "PLUGIN[:key=value,...] IN.safetensors" */
    int         min_args, max_args;    /* max < 0: any number */
    const char *details;               /* paragraphs for --help and the man page, or NULL */
    const struct tsr_option *options;  /* names with '_' appear as --a-b; BOOL takes no value */
    uint64_t    n_options, options_size;
    /* opts: the filled struct.  Prints data to stdout; returns the status that becomes the exit
     * code; the sentence in err is printed by main. */
    tsr_status (*run)(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err);
};

/* "1,5,9" -> ids; TSR_E_INPUT naming the item. Freed by the caller. */
tsr_status tsr_cli_ids(const char *text, uint32_t **ids, uint64_t *n, struct tsr_err *err);
/* Prints a JSON value and a newline to stdout, flushes; a failing stdout is an error.  Takes
 * the reference.  j NULL means out of memory. */
struct json_t;
tsr_status tsr_cli_print_json(struct json_t *j, struct tsr_err *err);
/* fflush(stdout) with its error. */
tsr_status tsr_cli_flush(struct tsr_err *err);

#endif
