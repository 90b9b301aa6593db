/* base/err.h - how the core reports failure.
 *
 * A function that can fail returns a tsr_status and writes one sentence into the caller's tsr_err:
 * what, where, what was expected, what to do.  Nothing below cli/ prints, exits or aborts.  The
 * core also uses the codes of plugin.h; the codes below never cross the plugin border.
 */
#ifndef TSR_BASE_ERR_H
#define TSR_BASE_ERR_H

#include "tessera/plugin.h"

#define TSR_E_INPUT      (-100) /* a file, argument or YAML that the user gave    */
#define TSR_E_FULL       (-101) /* no room on disk                                */
#define TSR_E_INFEASIBLE (-102) /* no plan exists, or it does not fit             */
#define TSR_E_GATE       (-103) /* fail_if holds                                  */
#define TSR_E_BUG        (-104) /* an internal invariant is broken */
#define TSR_E_CHECK      (-105) /* what was examined breaks a rule                 */
#define TSR_E_PLUGIN     (-106) /* a plugin did what its interface forbids         */

/* Returned for a lost descriptor by functions of base/ that return an errno; larger than any system errno.
 * tsr_fail_errno() converts it to a message. */
#define TSR_ELOST 4096

/* An error together with its buffer.  `struct tsr_errbuf e = TSR_ERRBUF(e);`
 * Pass &e.err to functions; e.text holds the message. */
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

/* Prepends "prefix: " to the message in err; returns st. */
tsr_status tsr_err_prefix(struct tsr_err *err, tsr_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends to the message in err, which keeps its object; returns st. */
tsr_status tsr_err_append(struct tsr_err *err, tsr_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The sentence of another err with its object and position; returns st. */
tsr_status tsr_err_copy(struct tsr_err *err, tsr_status st, const struct tsr_err *from);
/* The same for an error that another process wrote into shared memory: untrusted input, except for its st.
 * "it failed with no message" if there is none. */
tsr_status tsr_err_receive(struct tsr_err *err, tsr_status st, const struct tsr_errbuf *from);
/* An error on its way to another rank: no pointers, and untrusted input where it arrives. */
struct tsr_err_sent {
    int32_t  status;
    uint32_t object_at, object_bytes, line, column;
    char     text[1024];
};
void tsr_err_send(struct tsr_err_sent *to, tsr_status st, const struct tsr_err *from);
/* The sentence with its fields, after "" or a place such as "rank 2 on b: ".  Returns its status. */
tsr_status tsr_err_arrive(struct tsr_err *err, const struct tsr_err_sent *from, const char *before);
/* The object of the message: bytes of the text, not terminated; 0 and NULL: none.  Validates an err that a
 * plugin filled in. */
uint32_t tsr_err_object(const struct tsr_err *err, const char **object);
/* "input", "no-memory", ...: the status for programs. */
const char *tsr_status_word(tsr_status st);

/* "PATH: cannot OP: strerror(errno)"; ENOSPC, EDQUOT and EFBIG give TSR_E_FULL, ENOMEM
 * and too many open files TSR_E_NOMEM, a file that is missing or not readable TSR_E_INPUT, a descriptor that
 * a plugin closed (TSR_ELOST) TSR_E_PLUGIN, the rest TSR_E_IO. */
tsr_status tsr_fail_errno(struct tsr_err *err, int errnum, const char *path, const char *op);
/* Sets the function that writes the message for a lost descriptor into err.  `f` (plugin/guard.c) knows the
 * plugin call; if no plugin was loaded, the loss is a bug of the host. */
void tsr_fail_lost_by(tsr_status (*f)(struct tsr_err *err, const char *path, const char *op));

/* "out of memory: N bytes for WHAT" and TSR_E_NOMEM. */
tsr_status tsr_fail_nomem(struct tsr_err *err, uint64_t bytes, const char *what);

/* The exit code of rulings: 0, 1, 2, 3, 4, 5, 6, 70 or 75. */
int tsr_exit_code(tsr_status st);

#endif
