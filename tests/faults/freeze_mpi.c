/* faults/freeze_mpi.c - preloaded (LD_PRELOAD) into the ranks of an MPI job: one of them stands still at a call of
 * MPI.
 *
 *   TSR_FREEZE=CALL,N,RANK,WHO  the N-th CALL of this rank of the job stops the process WHO: self or mpirun; or
 *                               never returns: thread.  Of pread() those of the main thread, once MPI is up
 *   TSR_FREEZE_ONCE=FILE        which is made then; where it is, nothing happens
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic unsigned long calls;

static void reach(const char *call)
{
    const char   *at = getenv("TSR_FREEZE"), *once = getenv("TSR_FREEZE_ONCE");
    const char   *mine = getenv("OMPI_COMM_WORLD_RANK");
    char          name[32], who[16];
    unsigned long n, rank;
    if (!at || !once || !mine || sscanf(at, "%31[^,],%lu,%lu,%15s", name, &n, &rank, who) != 4 ||
        strcmp(name, call) != 0 || strtoul(mine, NULL, 10) != rank ||
        atomic_fetch_add(&calls, 1) + 1 != n)
        return;
    int fd = open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    (void)close(fd);
    while (strcmp(who, "thread") == 0)
        (void)pause();
    (void)kill(strcmp(who, "self") == 0 ? getpid() : getppid(), SIGSTOP);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    int up = 0;
    if (gettid() == getpid() && MPI_Initialized(&up) == MPI_SUCCESS && up)
        reach("pread");
    return syscall(SYS_pread64, fd, to, n, at);
}

int MPI_Isend(const void *buf, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    reach("MPI_Isend");
    return PMPI_Isend(buf, n, type, to, tag, comm, request);
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *got)
{
    reach("MPI_Init_thread");
    return PMPI_Init_thread(argc, argv, wanted, got);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    reach("MPI_Ibarrier");
    return PMPI_Ibarrier(comm, request);
}

int MPI_Finalize(void)
{
    reach("MPI_Finalize");
    return PMPI_Finalize();
}
