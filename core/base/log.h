/* base/log.h - diagnostics on stderr, one complete line at a time.  Levels of plugin.h.
 * TSR_LOG=debug|info|warn sets the level (default warn; -v lowers it). */
#ifndef TSR_BASE_LOG_H
#define TSR_BASE_LOG_H

#include <stdint.h>

void    tsr_log_set_level(int32_t level);
int32_t tsr_log_level(void);
void    tsr_log_line(int32_t level, const char *msg);
void    tsr_logf(int32_t level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Redirects this thread's lines, of any level, from stderr to take(); NULL: ends the redirection. */
void tsr_log_divert(void (*take)(void *ctx, int32_t level, const char *msg), void *ctx);

/* Progress of a long job: redraws one line on a terminal, prints a line at most
 * every five seconds elsewhere, nothing under -q.  done == total ends it. */
void tsr_progress(const char *what, uint64_t done, uint64_t total);
void tsr_progress_quiet(int quiet);

#endif
