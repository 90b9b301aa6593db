/* cli/cli.h - verbs of the program as tables.  The same table parses the arguments, prints
 * --help, and fills the man pages, so they cannot disagree.
 *
 * A verb is one file cli/verbs/<name>.c that defines `const struct tsr_verb tsr_verb_<name>`;
 * cli/verbs.c lists them.  stdout is data, stderr is talk.
 *
 * Common to every verb (cli/args.c): --json, --threads, --plugin-path, -q, -v, --color,
 * --help; --set for verbs with `jobs`.  --a-b VALUE or --a-b=VALUE; BOOL: --flag, --no-flag;
 * `output` and `out` are also -o, `input` -i.
 */
#ifndef TSR_CLI_CLI_H
#define TSR_CLI_CLI_H

#include "config/config.h"
#include "plugin/registry.h"

struct json_t;

/* What every verb can reach.  Created lazily: --help touches no plugin and starts no thread. */
struct tsr_cli {
    bool                     json, quiet, colour;
    bool                     no;    /* set by a verb that answers no: exit code 1, no sentence */
    bool                     ended; /* a worker process ran the verb: `code` is its exit code */
    int                      code;
    int                      argc; /* of the program */
    char                   **argv;
    const char              *mpirun;  /* words for mpirun, which is the worker; NULL: none */
    bool                     hard;    /* exit at once: peers that MPI would wait for may have
                                       * ended */
    uint32_t                 threads; /* 0: all CPUs */
    const char *const       *plugin_paths;
    uint64_t                 n_plugin_paths;
    const char *const       *sets; /* --set a.b=c */
    uint64_t                 n_sets;
    const struct tsr_verb   *verb; /* the one that runs */
    struct tsr_plugin_run_on on;   /* of the job, before there is a registry */
    struct tsr_pool         *pool;
    struct tsr_registry     *registry;
    bool                     paths_added; /* --plugin-path is in the registry */
    struct json_t           *diagnostics; /* errors of YAML files, under --json (cli/failure.h) */
};
/* The registry without --plugin-path: plugins that a job names come first. */
tsr_status tsr_cli_registry_bare(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err);
/* Pool and registry, made on first use; freed by main. */
tsr_status tsr_cli_registry(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err);

/* An option that may be given several times; its field is a struct tsr_cli_strings.  Only for
 * verbs, not for YAML. */
#define TSR_OPT_REPEAT 101u
struct tsr_cli_strings {
    const char **v;
    uint64_t     n;
};
#define TSR_OPTION_REPEAT(S, f, u, h)                                                              \
    {                                                                                              \
        .name = #f, .help = h, .unit = u, .type = TSR_OPT_REPEAT,                                  \
        .offset = TSR_FIELD(S, f, struct tsr_cli_strings)                                          \
    }

struct tsr_verb {
    const char              *name;    /* "logits" */
    const char              *summary; /* one line */
    const char              *args;    /* "MODEL", "PLUGIN[:key=value,...] IN.safetensors" */
    int                      min_args, max_args; /* max < 0: any number */
    const char              *details; /* paragraphs for --help and the man page, or NULL */
    const struct tsr_option *options; /* names with '_' appear as --a-b; BOOL takes no value */
    uint64_t                 n_options, options_size;
    /* opts: the filled struct.  Prints data to stdout; returns the status that becomes the exit
     * code; the sentence in err is printed by main. */
    tsr_status (*run)(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err);
    bool jobs; /* runs jobs: takes --set */

    /* A verb that is a job of a step (cli/jobs.h): opts is a struct tsr_cli_strings of "key=value", and further options
     * are a plugin's where the step is open.  Without `options` its table is the step's, `before`'s and `own`. */
    const struct tsr_pipeline_step *step,
        *before; /* before: in front, where the option `when` is given */
    const char              *when;
    const struct tsr_option *own; /* that the verb reads itself */
    uint64_t                 n_own;
    const char *const
               *presets; /* "key=value" defaults of the verb, before the user's; NULL-terminated */
    const char *product; /* "the packed model is": what is in the job's folder; NULL: results */
    const char *const *stated; /* defaults that the step itself has for this verb, for its help */
    const struct tsr_cli_rename *renames; /* options that have another name here than in the step */
    uint64_t                     n_renames;
    bool                         loose; /* has no job folder: the step's result is the output */
    bool                         files; /* accepts a job file as well as a model */
    bool                         lean;  /* returns freed memory to the system at once */
    bool alias; /* the step's name finds the verb too: with the step's keys, and in a job folder */
    const struct tsr_verb *shown; /* of an alias: the verb that help explains instead */
};
struct tsr_cli_rename {
    const char *option, *key;
};

/* The i-th verb, or NULL past the end: those of cli/verbs.c, then the steps that no verb with the same
 * name or with an alias covers. Requires that the tables of steps are set. */
const struct tsr_verb *tsr_verb_at(uint64_t i);
/* By name or alias, or NULL with the nearest name in *near (may be NULL too). */
const struct tsr_verb *tsr_verb_find(const char *name, const char **near);

/* Prints a JSON value and a newline to stdout, flushes; a failing stdout is an error.  Takes
 * the reference.  j NULL means out of memory. */
tsr_status tsr_cli_print_json(struct json_t *j, struct tsr_err *err);
/* fflush(stdout) with its error. */
tsr_status tsr_cli_flush(struct tsr_err *err);

#endif
