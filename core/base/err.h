/* base/err.h - how the core reports failure.
 *
 * A function that can fail returns a tsr_status and puts one sentence into the
 * caller's tsr_err: what, where, what was wanted, what to do.  Nothing below
 * cli/ prints, exits or aborts.  The codes of plugin.h serve inside the core too;
 * those below never cross the plugin border.
 */
#ifndef TSR_BASE_ERR_H
#define TSR_BASE_ERR_H

#include "tessera/plugin.h"

#define TSR_E_INPUT      (-100) /* a file, argument or YAML that the user gave    */
#define TSR_E_FULL       (-101) /* no room on disk                                */
#define TSR_E_INFEASIBLE (-102) /* no plan exists, or it does not fit             */
#define TSR_E_GATE       (-103) /* fail_if holds                                  */
#define TSR_E_BUG        (-104) /* an invariant of ours is broken                 */
#define TSR_E_CHECK      (-105) /* what was examined breaks a rule                 */
#define TSR_E_PLUGIN     (-106) /* a plugin did what its interface forbids         */

/* A sentence with room of its own.  `struct tsr_errbuf e = TSR_ERRBUF(e);`
 * &e.err goes to functions, e.text holds the result. */
struct tsr_errbuf {
    struct tsr_err err;
    char           text[2048];
};
#define TSR_ERRBUF(v)                                                                              \
    {                                                                                              \
        .err = {.struct_size = sizeof(struct tsr_err), .cap = sizeof((v).text), .text = (v).text } \
    }

/* Returns the status of a failing call from the calling function. */
#define TSR_TRY(call)                                                                              \
    do {                                                                                           \
        tsr_status tsr_try_ = (call);                                                              \
        if (tsr_try_ != TSR_OK)                                                                    \
            return tsr_try_;                                                                       \
    } while (0)

/* Puts "prefix: " in front of a sentence already in err; returns st. */
tsr_status tsr_err_prefix(struct tsr_err *err, tsr_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "PATH: cannot OP: strerror(errno)"; ENOSPC, EDQUOT and EFBIG give TSR_E_FULL, ENOMEM
 * and too many open files TSR_E_NOMEM, a file that is missing or not readable TSR_E_INPUT, the rest TSR_E_IO. */
tsr_status tsr_fail_errno(struct tsr_err *err, int errnum, const char *path, const char *op);

/* "out of memory: N bytes for WHAT" and TSR_E_NOMEM. */
tsr_status tsr_fail_nomem(struct tsr_err *err, uint64_t bytes, const char *what);

/* The exit code of rulings: 0, 1, 2, 3, 4, 5, 6, 70 or 75. */
int tsr_exit_code(tsr_status st);

#endif
