#include "base/err.h"

#include <errno.h>
#include <string.h>

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
    char    where[sizeof old];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    return tsr_fail(err, st, "%s: %s", where, old);
}

tsr_status tsr_fail_errno(struct tsr_err *err, int errnum, const char *path, const char *op)
{
    tsr_status st = TSR_E_IO;
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        st = TSR_E_FULL;
        break;
    case ENOMEM:
    case EMFILE: /* what a process or machine may have at once has run out */
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
