/* cli/inspect/written_print.h - plans and device profiles as text on stdout; for tsr_inspect_print(). */
#ifndef TSR_CLI_INSPECT_WRITTEN_PRINT_H
#define TSR_CLI_INSPECT_WRITTEN_PRINT_H

#include <jansson.h>

/* An object of tsr_inspect_written(): a plan. */
void tsr_inspect_print_plan(const json_t *p);
/* One of tsr_inspect_written() or tsr_inspect_profile(): a device profile. */
void tsr_inspect_print_profile(const json_t *p);

#endif
