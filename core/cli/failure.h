/* cli/failure.h - reports a failure of the program: a sentence on stderr, or with --json one line of JSON
 * there, with status, object and position as fields (docs/guide/job-files.md).
 */
#ifndef TSR_CLI_FAILURE_H
#define TSR_CLI_FAILURE_H

#include "cli/cli.h"

/* Prints err. Without a text: the cause is unknown. */
void tsr_cli_failure_print(const struct tsr_cli *c, tsr_status st, const struct tsr_err *err);
/* The errors of a YAML file: printed at once, or kept for the line of JSON. */
tsr_status tsr_cli_failure_keep(struct tsr_cli *c, struct tsr_diag *d, struct tsr_err *err);
/* {file, severity, line, column, length, message, object, hint} of an error of a YAML file; NULL: no memory. */
struct json_t *tsr_cli_failure_item(const struct tsr_config_diag_item *v);

#endif
