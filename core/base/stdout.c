#include "base/stdout.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_bool gone;

bool tsr_stdout_gone(void)
{
    return atomic_load(&gone);
}

tsr_status tsr_stdout_flush(struct tsr_err *err)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return TSR_OK;
    if (!errno && write(STDOUT_FILENO, "\n", 1) == 1)
        errno = EIO; /* an earlier write failed, and its reason is lost; another one did not fail */
    int e = errno ? errno : EIO;
    if (e == EPIPE)
        atomic_store(&gone, true);
    tsr_status st = tsr_fail_errno(err, e, "standard output", "write");
    return st == TSR_E_INPUT ? TSR_E_IO : st;
}
