/* cli/inspect/family_print.h - the answers of cli/inspect/family.c as text on stdout. */
#ifndef TSR_CLI_INSPECT_FAMILY_PRINT_H
#define TSR_CLI_INSPECT_FAMILY_PRINT_H

#include <jansson.h>

/* What tsr_inspect_family() gives. */
void tsr_inspect_print_family(const json_t *f);
/* What tsr_inspect_model_family() has put into a model; nothing if it has not. */
void tsr_inspect_print_model_family(const json_t *m);

#endif
