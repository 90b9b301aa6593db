/* plugin/state.h - the process state that a plugin must not change, and how to restore it.
 *
 *   take before -> the plugin's call -> compare -> restore what can be restored, report the rest
 *
 * Floating-point mode, signal mask and uselocale() belong to the calling thread; the rest to the process. */
#ifndef TSR_PLUGIN_STATE_H
#define TSR_PLUGIN_STATE_H

#include "plugin/fpmode.h"

#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TSR_STATE_SIGNALS 19 /* those that Tessera, a library or a shell uses */

/* An open file, identified by fstat(). */
struct tsr_plugin_state_file {
    int   fd;
    dev_t dev;
    ino_t ino;
};

struct tsr_plugin_state {
    struct tsr_plugin_fpmode     fp;
    sigset_t                     mask;
    locale_t                     thread_locale;
    char                         locale[320]; /* "" if its name is longer */
    struct sigaction             action[TSR_STATE_SIGNALS];
    struct tsr_plugin_state_file folder;     /* fd -1: it is gone */
    char                         path[1024]; /* of the folder; "" if it is too long or has none */
    mode_t                       umask;      /* (mode_t)-1: not known */
    bool umask_earlier;                      /* read before an earlier call: that may be to blame */
    struct tsr_plugin_state_file std[3];     /* fd -1: closed */
    int                          copy[3]; /* of the standard streams, to put them back; -1: none */
};

/* Everything above; the copies are open until tsr_plugin_state_free(), after which a stream that is lost can
 * only be stood in for by /dev/null. */
void tsr_plugin_state_take(struct tsr_plugin_state *s);
void tsr_plugin_state_free(struct tsr_plugin_state *s);
/* The same right after tsr_plugin_state_compare_later(same, with_umask, ...) found no difference: most of it is
 * known. */
void tsr_plugin_state_take_known(struct tsr_plugin_state *s, const struct tsr_plugin_state *same,
                                 bool with_umask);

/* Checks that the descriptors of base/held.h are still the host's.  If not, as tsr_plugin_state_compare();
 * each loss is reported once. */
unsigned tsr_plugin_state_compare_held(char *text, size_t cap);

/* Compares the process state.  A difference: one clause into text ("changed the working folder from /a
 * to /"), the first difference in full and the others by name, and restores what it can.  Returns the
 * number of differences. */
unsigned tsr_plugin_state_compare(const struct tsr_plugin_state *was, char *text, size_t cap);
/* Variant for intervals in which the host's own code ran.  A sanitizer, a debugger or a test framework may
 * have installed or removed crash handlers, so handlers of those signals are not compared.  The umask, which
 * costs a read of /proc and half of the time, is compared only on request. */
unsigned tsr_plugin_state_compare_later(const struct tsr_plugin_state *was, bool with_umask,
                                        char *text, size_t cap);

#endif
