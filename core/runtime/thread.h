/* runtime/thread.h - a thread that takes no signals: those are for the one that coordinates. */
#ifndef TSR_RUNTIME_THREAD_H
#define TSR_RUNTIME_THREAD_H

#include "base/err.h"

#include <pthread.h>

/* To be joined by the caller.  TSR_E_NOMEM: the system has none left. */
tsr_status tsr_runtime_thread_start(pthread_t *id, void *(*f)(void *), void *arg,
                                    struct tsr_err *err);

#endif
