/* library.c - the MPI library: exclusive access, start, end. */
/* Requests outlive the function that starts them, which the checker does not follow.
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
#include "group.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SPIN_ROUNDS 2000u
#define NAP_NS      50000
#define LONG_NAP_NS 200000 /* in a long wait */
#define LONG_ROUNDS 2200u
#define FAREWELL_US 2000000u /* for the others, before MPI_Finalize */
#define FINALIZE_S  10u      /* for MPI_Finalize itself */
#define PEER_LOST   6        /* the program's exit code for that */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool            started; /* MPI was initialised here, and must be finalised here */

void mpi_enter(void)
{
    (void)pthread_mutex_lock(&lock);
}

void mpi_leave(void)
{
    (void)pthread_mutex_unlock(&lock);
}

uint64_t mpi_now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

void mpi_nap(unsigned round)
{
    const struct timespec t = { 0, round < LONG_ROUNDS ? NAP_NS : LONG_NAP_NS };
    if (round < SPIN_ROUNDS)
        (void)sched_yield();
    else
        (void)nanosleep(&t, NULL);
}

const char *mpi_text(int code)
{
    static _Thread_local char text[MPI_MAX_ERROR_STRING + 1];
    int                       n = 0;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        (void)snprintf(text, sizeof text, "error %d", code);
    return text;
}

static int exit_status;

static void end_now(int signal)
{
    static const char text[] =
        "tessera: error: mpi: the other ranks were waited for 10 s at the end of "
        "MPI; one of them is stopped\n";
    (void)signal;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    /* mpirun, which sees that this rank left MPI unfinished, ends the others */
    _exit(exit_status ? exit_status : PEER_LOST);
}

/* At the end of the process. MPI_Finalize waits for the peers without a deadline, so this first checks
 * that they are ready. Without all of them, the job ends with what mpirun detects; the same holds if a
 * peer stalls afterwards. */
static void farewell(int status, void *arg)
{
    MPI_Request r;
    int         done = 0;
    (void)arg;
    if (!started || MPI_Ibarrier(MPI_COMM_WORLD, &r) != MPI_SUCCESS)
        return;
    uint64_t start = mpi_now_us();
    for (unsigned round = 0; !done && mpi_now_us() - start < FAREWELL_US; round++) {
        if (MPI_Test(&r, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        if (!done)
            mpi_nap(round);
    }
    if (!done)
        return;
    exit_status = status;
    (void)signal(SIGALRM, end_now);
    (void)alarm(FINALIZE_S);
    (void)MPI_Finalize();
    (void)alarm(0);
}

/* Without a launcher, MPI_Init would start one or hang. */
static bool under_launcher(void)
{
    static const char *const marks[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                         "PMI_SIZE", "MPI_LOCALNRANKS" };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

tsr_status mpi_start(struct tsr_err *err)
{
    int up = 0, over = 0, level = 0;
    if (MPI_Initialized(&up) != MPI_SUCCESS || MPI_Finalized(&over) != MPI_SUCCESS || over)
        return tsr_fail(err, TSR_E_DEVICE, "mpi: MPI has ended in this process");
    if (!up) {
        if (!under_launcher())
            return tsr_fail(err, TSR_E_CONFIG,
                            "mpi: this process was not started by an MPI launcher; start it with "
                            "`mpirun -n RANKS tessera ...`, or use transport local");
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS)
            return tsr_fail(err, TSR_E_DEVICE, "mpi: MPI_Init_thread failed: %s", mpi_text(code));
        started = true;
        (void)on_exit(farewell, NULL);
    } else {
        (void)MPI_Query_thread(&level);
    }
    if (level < MPI_THREAD_SERIALIZED)
        return tsr_fail(err, TSR_E_CONFIG,
                        "mpi: this MPI library serves one thread only; it was built without thread "
                        "support");
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return TSR_OK;
}
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
