/* cli/bench/diff.h - `tessera bench diff A B`: two results of `tessera bench --json`, row by row. */
#ifndef TSR_CLI_BENCH_DIFF_H
#define TSR_CLI_BENCH_DIFF_H

#include "base/err.h"

#include <stdbool.h>

#define BENCH_DIFF_FORMAT "tessera.bench-diff/1"

/* Prints a table, or with json one object.  Compared are the rounds of both: shares of a peak of the same round, or
 * values where a row has no peak. A row is slower where its whole interval is below 1 - tolerance.  TSR_E_INPUT for a
 * file that is no such result; TSR_E_CHECK, after the table, where a row is slower.  [main] */
tsr_status bench_diff(const char *first, const char *second, double tolerance, bool json,
                      struct tsr_err *err);

#endif
