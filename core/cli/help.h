/* cli/help.h - --help and man pages from the tables. */
#ifndef TSR_CLI_HELP_H
#define TSR_CLI_HELP_H

#include "cli/cli.h"

/* The program, or one verb; all: rarely used options too. */
void tsr_help_program(FILE *to);
void tsr_help_verb(const struct tsr_verb *v, bool all, FILE *to);
/* The same as man(7) pages; v NULL is tessera(1). */
void tsr_man_page(const struct tsr_verb *v, FILE *to);
/* "tessera 0.1.0 (ABI 1.0 draft)" */
const char *tsr_version_line(void);

#endif
