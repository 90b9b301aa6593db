#include "base/err.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static tsr_status (*_Atomic ask)(struct tsr_err *, const char *, const char *);

tsr_status tsr_err_prefix(struct tsr_err *err, tsr_status st, const char *fmt, ...)
{
    if (!err || !err->cap)
        return st;
    char   old[sizeof(((struct tsr_errbuf *)0)->text)];
    size_t n = strnlen(err->text, err->cap - 1);
    if (n >= sizeof old)
        n = sizeof old - 1;
    memcpy(old, err->text, n);
    old[n] = '\0';
    struct tsr_err was = *err;
    const char    *object;
    char           where[sizeof old];
    va_list        ap;
    va_start(ap, fmt);
    (void)vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    bool named = tsr_err_object(err, &object) > 0;
    st = tsr_fail(err, st, "%s: %s", where, old);
    if (named) { /* the inner cause, not the call site */
        err->object_at = was.object_at + (uint32_t)strlen(where) + 2;
        err->object_bytes = was.object_bytes;
        err->line = was.line;
        err->column = was.column;
    }
    return st;
}

tsr_status tsr_err_append(struct tsr_err *err, tsr_status st, const char *fmt, ...)
{
    if (!err || !err->cap)
        return st;
    size_t  n = strnlen(err->text, err->cap - 1);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->text + n, err->cap - n, fmt, ap);
    va_end(ap);
    for (char *c = err->text + n; *c; c++) /* as in tsr_fail() */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    return st;
}

tsr_status tsr_err_copy(struct tsr_err *err, tsr_status st, const struct tsr_err *from)
{
    (void)tsr_fail(err, st, "%s", from->text);
    if (err && err->cap) {
        err->object_at = from->object_at;
        err->object_bytes = from->object_bytes;
        err->line = from->line;
        err->column = from->column;
    }
    return st;
}

tsr_status tsr_err_receive(struct tsr_err *err, tsr_status st, const struct tsr_errbuf *from)
{
    struct tsr_errbuf e = *from;
    e.err.struct_size = sizeof e.err;
    e.err.cap = sizeof e.text;
    e.err.text = e.text;
    e.text[sizeof e.text - 1] = '\0';
    return *e.text ? tsr_err_copy(err, st, &e.err) : tsr_fail(err, st, "it failed with no message");
}

void tsr_err_send(struct tsr_err_sent *to, tsr_status st, const struct tsr_err *from)
{
    const char *object;
    uint32_t    n = tsr_err_object(from, &object);
    memset(to, 0, sizeof *to);
    to->status = st;
    (void)snprintf(to->text, sizeof to->text, "%.*s", (int)strnlen(from->text, from->cap),
                   from->text);
    if (n == 0 || from->object_at + n >= sizeof to->text)
        return;
    to->object_at = from->object_at;
    to->object_bytes = n;
    to->line = from->line;
    to->column = from->column;
}

tsr_status tsr_err_arrive(struct tsr_err *err, const struct tsr_err_sent *from, const char *before)
{
    int      n = (int)strnlen(from->text, sizeof from->text), whole = (int)strlen(before);
    uint32_t at = from->object_at, bytes = from->object_bytes;
    (void)tsr_fail(err, from->status, "%.*s%.*s", whole, before, n, from->text);
    if (!err || !err->cap)
        return from->status;
    bool named = bytes > 0 && bytes <= (uint32_t)n && at <= (uint32_t)n - bytes;
    err->object_at = named ? (uint32_t)whole + at : 0;
    err->object_bytes = named ? bytes : 0;
    err->line = named ? from->line : 0;
    err->column = named ? from->column : 0;
    return from->status;
}

uint32_t tsr_err_object(const struct tsr_err *err, const char **object)
{
    size_t n = strnlen(err->text, err->cap);
    *object = NULL;
    if (err->object_bytes == 0 || err->object_bytes > n || err->object_at > n - err->object_bytes)
        return 0;
    *object = err->text + err->object_at;
    return err->object_bytes;
}

const char *tsr_status_word(tsr_status st)
{
    switch (st) {
    case TSR_OK:
        return "ok";
    case TSR_E_INVAL:
        return "invalid-call";
    case TSR_E_CONFIG:
        return "config";
    case TSR_E_UNSUPPORTED:
        return "unsupported";
    case TSR_E_NOMEM:
        return "no-memory";
    case TSR_E_IO:
        return "io";
    case TSR_E_DEVICE:
        return "device";
    case TSR_E_NUMERIC:
        return "numeric";
    case TSR_E_CANCELLED:
        return "cancelled";
    case TSR_E_INPUT:
        return "input";
    case TSR_E_FULL:
        return "disk-full";
    case TSR_E_INFEASIBLE:
        return "infeasible";
    case TSR_E_GATE:
        return "gate";
    case TSR_E_CHECK:
        return "check";
    case TSR_E_PLUGIN:
        return "plugin";
    default:
        return "bug";
    }
}

void tsr_fail_lost_by(tsr_status (*f)(struct tsr_err *err, const char *path, const char *op))
{
    atomic_store(&ask, f);
}

static tsr_status fail_lost(struct tsr_err *err, const char *path, const char *op)
{
    tsr_status (*f)(struct tsr_err *, const char *, const char *) = atomic_load(&ask);
    if (f)
        return f(err, path, op);
    return tsr_fail(err, TSR_E_BUG,
                    "%s: cannot %s: its descriptor was closed and leads elsewhere, and no plugin "
                    "is loaded that could have done it",
                    path, op);
}

tsr_status tsr_fail_errno(struct tsr_err *err, int errnum, const char *path, const char *op)
{
    tsr_status st = TSR_E_IO;
    if (errnum == TSR_ELOST)
        return fail_lost(err, path, op);
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        st = TSR_E_FULL;
        break;
    case ENOMEM:
    case EMFILE: /* a resource limit of the process or machine is reached */
    case ENFILE:
        st = TSR_E_NOMEM;
        break;
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EROFS:
        st = TSR_E_INPUT;
        break;
    default:
        break;
    }
    return tsr_fail(err, st, "%s: cannot %s: %s", path, op, strerror(errnum));
}

tsr_status tsr_fail_nomem(struct tsr_err *err, uint64_t bytes, const char *what)
{
    return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for %s", (unsigned long long)bytes,
                    what);
}

int tsr_exit_code(tsr_status st)
{
    switch (st) {
    case TSR_OK:
        return 0;
    case TSR_E_INPUT:
    case TSR_E_CONFIG:
    case TSR_E_UNSUPPORTED:
        return 2;
    case TSR_E_INFEASIBLE:
        return 3;
    case TSR_E_NOMEM:
    case TSR_E_FULL:
        return 4;
    case TSR_E_GATE:
        return 5;
    case TSR_E_DEVICE:
        return 6;
    case TSR_E_INVAL:
    case TSR_E_BUG:
        return 70;
    case TSR_E_CANCELLED:
        return 75;
    default: /* TSR_E_IO, TSR_E_NUMERIC, TSR_E_CHECK, TSR_E_PLUGIN */
        return 1;
    }
}
