#include "runtime/thread.h"

#include "base/signals.h"

tsr_status tsr_runtime_thread_start(pthread_t *id, void *(*f)(void *), void *arg,
                                    struct tsr_err *err)
{
    sigset_t all, old;
    tsr_signals_of_others(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(id, NULL, f, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "cannot start a thread");
}
