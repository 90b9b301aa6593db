/* cli/help.h - help, man pages, completions and the tables as JSON, all from the verbs' tables. */
#ifndef TSR_CLI_HELP_H
#define TSR_CLI_HELP_H

#include "cli/cli.h"

#include <stdio.h>

/* "tessera 0.1.0 (ABI 1.2)" */
const char *tsr_cli_version_line(void);
void        tsr_cli_help_program(FILE *to);
/* all: with options that are rarely used */
void tsr_cli_help_verb(const struct tsr_verb *v, bool all, FILE *to);
/* troff of man(7); v NULL: the program. */
void tsr_cli_man_page(const struct tsr_verb *v, FILE *to);

/* Placeholder of an option's value: "FILE", "N"; "" for an option without a value. */
const char *tsr_cli_option_word(const struct tsr_option *o);

/* Verbs that `tessera help` lists together. */
#define TSR_CLI_GROUP_VERBS 10u
struct tsr_verb_group {
    const char *name;
    const char *verbs[TSR_CLI_GROUP_VERBS]; /* NULL-terminated */
};
/* The i-th, or NULL past the end. */
const struct tsr_verb_group *tsr_verb_group_at(uint64_t i);

/* All verbs, steps and job keys with their options; the steps are ours, and those of plugins of r but for names of
 * ours, which jobs do not use.  *out is a new reference. */
struct json_t;
tsr_status tsr_cli_help_json(struct tsr_registry *r, struct json_t **out, struct tsr_err *err);

enum tsr_shell { TSR_CLI_SHELL_NONE, TSR_CLI_SHELL_BASH, TSR_CLI_SHELL_ZSH, TSR_CLI_SHELL_FISH };
/* A script for the shell that completes verbs, options, their values, and files. */
/* Names for choices that take any other text, each with a blank before it; kept by the caller until the script is printed. */
void tsr_cli_completion_other(const char *names);
void tsr_cli_completions_bash(FILE *to);
void tsr_cli_completions_zsh(FILE *to);
void tsr_cli_completions_fish(FILE *to);

#endif
