/* plugin/state.h - what of the process a plugin must leave alone, and how to put it back.
 *
 *   take before -> the plugin's call -> compare -> mend what can be mended, tell the rest
 *
 * Floating-point mode, signal mask and uselocale() are the calling thread's; the rest is the process's. */
#ifndef TSR_PLUGIN_STATE_H
#define TSR_PLUGIN_STATE_H

#include "plugin/fpmode.h"

#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

#define TSR_STATE_SIGNALS 19 /* those that a program of ours, a library or a shell has a use for */
#define TSR_STATE_HELD    32 /* files that the host holds for good */

/* An open file, as fstat() tells it from others. */
struct tsr_state_file {
    int   fd;
    dev_t dev;
    ino_t ino;
};

struct tsr_state {
    struct tsr_fpmode     fp;
    sigset_t              mask;
    locale_t              thread_locale;
    char                  locale[320]; /* "" where its name is longer */
    struct sigaction      action[TSR_STATE_SIGNALS];
    struct tsr_state_file folder;     /* fd -1: it is gone */
    char                  path[1024]; /* of the folder; "" where it is longer or has none */
    mode_t                umask;      /* (mode_t)-1: not known */
    struct tsr_state_file std[3];     /* fd -1: closed */
    int                   copy[3];    /* of the standard streams, to put them back; -1: none */
};

/* Everything above; the copies are open until tsr_state_free(), after which a stream that is lost can
 * only be stood in for by /dev/null. */
void tsr_state_take(struct tsr_state *s);
void tsr_state_free(struct tsr_state *s);

/* A descriptor that the host keeps open to its end; a plugin that closes it is found out.  [any] */
void tsr_state_hold(int fd);

/* Is the process as it was?  Else one clause into text ("changed the working folder from /a to /"), the
 * first difference in full and the others by name, and everything that can be is put back.
 * Returns the number of differences. */
unsigned tsr_state_compare(const struct tsr_state *was, char *text, size_t cap);
/* The same where the host's own code ran in between: what follows a crash (a sanitizer, a debugger, a test
 * frame) may have come and gone, so that handlers of those signals are not compared. */
unsigned tsr_state_compare_later(const struct tsr_state *was, char *text, size_t cap);

#endif
