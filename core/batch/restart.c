#include "batch/restart.h"

#include <signal.h>

/* Signals caused by the program itself.  A SIGKILL from outside blames no record. */
static bool fatal(const struct tsr_batch_ending *e)
{
    switch (e->signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
    case SIGSYS:
        return e->own_fault;
    default:
        return false;
    }
}

enum tsr_after tsr_batch_restart_decide(struct tsr_batch_restarts     *r,
                                        const struct tsr_batch_ending *e, uint64_t *wait_us,
                                        enum tsr_verdict *verdict)
{
    bool peer = e->exited && e->code == 6; /* a rank or a peer failed: the group restarts */
    bool starved = e->exited && e->code == 4 && e->memory;
    /* it stood still, mpirun passed on the supervisor's SIGTERM and woke it, and it stopped */
    bool obeyed = e->exited && e->code == 75 && e->stalled;
    bool own = !e->exited && (fatal(e) || e->memory || (e->stalled && e->late));
    own = own || starved || (obeyed && e->late) || (peer && (e->own_fault || e->memory || e->late));
    *verdict = own ? TSR_BATCH_VERDICT_OWN : TSR_BATCH_VERDICT_OUTSIDE;
    *wait_us = 0;
    if (e->exited && !peer && !starved && !obeyed)
        return TSR_BATCH_AFTER_STOP;
    if (e->done > r->done)
        r->row = 0;
    r->done = e->done;
    if (++r->row > TSR_RESTARTS_MOST)
        return TSR_BATCH_AFTER_GIVE_UP;
    if (r->row > 1) {
        *wait_us = TSR_RESTART_US << (r->row - 2);
        if (*wait_us > TSR_RESTART_CAP)
            *wait_us = TSR_RESTART_CAP;
    }
    return TSR_BATCH_AFTER_RESTART;
}

bool tsr_batch_beat_stalled(struct tsr_batch_beat *b, uint64_t beats, bool working, uint64_t now_us,
                            uint64_t stall_us)
{
    if (!b->seen || beats != b->beats || !working) {
        b->seen = true;
        b->beats = beats;
        b->since_us = now_us;
        return false;
    }
    return now_us - b->since_us > stall_us;
}
