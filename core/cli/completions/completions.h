/* cli/completions/completions.h - shared by the completion scripts of all shells. */
#ifndef TSR_CLI_COMPLETIONS_COMPLETIONS_H
#define TSR_CLI_COMPLETIONS_COMPLETIONS_H

#include "cli/args.h"
#include "cli/help.h"

/* How the value of an option is completed. */
enum tsr_value_kind {
    TSR_CLI_VALUE_NONE,   /* a switch */
    TSR_CLI_VALUE_CHOICE, /* one of the option's choices */
    TSR_CLI_VALUE_FILE,
    TSR_CLI_VALUE_FOLDER,
    TSR_CLI_VALUE_OTHER, /* a number or a text */
};
enum tsr_value_kind tsr_cli_completion_kind(const struct tsr_option *o);

/* Whether a verb takes the option. */
bool tsr_cli_completion_has(const struct tsr_verb *v, const struct tsr_option *o);

/* "--no-hessian": the flag as the user types it, with dashes. */
void tsr_cli_completion_flag(const struct tsr_option *o, char *buf, size_t cap);

/* The choices' names, with a blank between them. */
void tsr_cli_completion_choices(const struct tsr_option *o, FILE *to);

/* The words in small letters of a verb's `args`: "show|check OUTPUT" has two.  Takes the next from *s into
 * buf; false at the end. */
bool tsr_cli_completion_word(const char **s, char *buf, size_t cap);
/* What else `args` has: the name of a verb, and something that may be a file. */
bool tsr_cli_completion_takes_verb(const struct tsr_verb *v);
bool tsr_cli_completion_takes_files(const struct tsr_verb *v);

#endif
