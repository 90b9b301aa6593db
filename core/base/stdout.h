/* base/stdout.h - standard output, whose reader may go away. */
#ifndef TSR_BASE_STDOUT_H
#define TSR_BASE_STDOUT_H

#include "base/err.h"

#include <stdbool.h>

/* fflush(stdout) with its error.  [any] */
tsr_status tsr_stdout_flush(struct tsr_err *err);
/* The reader went away (`| head`): nothing to complain about. */
bool tsr_stdout_gone(void);

#endif
