/* group.c - a group of ranks begins and ends. */
/* Requests outlive the function that starts them, which the checker does not follow.
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
#include "group.h"
#include "tessera/crc32c.h"

#include <string.h>

static tsr_status check_world(const struct mpi_opts *o, const struct tsr_transport_world *w,
                              struct tsr_err *err)
{
    int mine = 0, size = 0, *top = NULL, found = 0;
    if (w->ranks == 0 || w->ranks > UINT16_MAX || w->rank >= w->ranks)
        return tsr_fail(err, TSR_E_CONFIG, "mpi: rank %u of %u ranks; 1 to %u ranks are possible",
                        w->rank, w->ranks, UINT16_MAX);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&top, &found);
    int64_t last = o->first + o->stride * ((int64_t)w->ranks - 1), top_rank = last;
    if (last < o->first)
        top_rank = o->first;
    if (last < 0 || (o->stride == 0 && w->ranks > 1))
        return tsr_fail(err, TSR_E_CONFIG,
                        "mpi: a group of %u ranks from MPI rank %lld by %lld is none", w->ranks,
                        (long long)o->first, (long long)o->stride);
    if (top_rank >= size)
        return tsr_fail(err, TSR_E_CONFIG,
                        "mpi: a group of %u ranks from MPI rank %lld by %lld needs %lld processes, "
                        "this job has %d; start it with `mpirun -n %lld`",
                        w->ranks, (long long)o->first, (long long)o->stride,
                        (long long)top_rank + 1, size, (long long)top_rank + 1);
    if (o->first + o->stride * (int64_t)w->rank != mine)
        return tsr_fail(err, TSR_E_CONFIG,
                        "mpi: rank %u of the group is MPI rank %lld, this process is MPI rank %d; "
                        "every rank of an MPI job is a process",
                        w->rank, (long long)(o->first + o->stride * (int64_t)w->rank), mine);
    if (found && 2 * o->tag + 1 > *top)
        return tsr_fail(err, TSR_E_CONFIG, "mpi: tag %lld; this MPI has tags up to %d",
                        (long long)o->tag, (*top - 1) / 2);
    return TSR_OK;
}

tsr_status mpi_create(const struct tsr_host *host, const void *opts,
                      const struct tsr_transport_world *world, void **self, struct tsr_err *err)
{
    const struct mpi_opts *o = opts;
    mpi_enter();
    tsr_status st = mpi_start(err);
    if (st == TSR_OK)
        st = check_world(o, world, err);
    uint64_t    size = sizeof(struct mpi) + (uint64_t)world->ranks * sizeof(struct mpi_link);
    struct mpi *s = st == TSR_OK ? host->alloc(host->ctx, size, _Alignof(struct mpi)) : NULL;
    if (st == TSR_OK && !s)
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for transport mpi",
                      (unsigned long long)size);
    if (s) {
        memset(s, 0, size);
        s->host = host;
        s->size = size;
        s->first = (int)o->first;
        s->stride = (int)o->stride;
        s->tag = 2 * (int)o->tag;
        s->rank = world->rank;
        s->ranks = world->ranks;
        s->crc_level = tsr_crc32c_level();
        if (TSR_HAS(struct tsr_transport_world, world, epoch))
            s->epoch = world->epoch;
        s->news = MPI_REQUEST_NULL;
        int code = MPI_Irecv(&s->news_from, 1, MPI_INT, MPI_ANY_SOURCE, s->tag + 1, MPI_COMM_WORLD,
                             &s->news);
        if (code != MPI_SUCCESS) {
            st = tsr_fail(err, TSR_E_DEVICE, "mpi: MPI_Irecv failed: %s", mpi_text(code));
            host->release(host->ctx, s, size);
            s = NULL;
        }
    }
    mpi_leave();
    *self = s;
    return st;
}

void mpi_destroy(void *self)
{
    struct mpi *s = self;
    int         done = 0;
    if (!s)
        return;
    mpi_enter();
    while (s->requests)
        mpi_request_release(s, s->requests);
    if (s->news != MPI_REQUEST_NULL) { /* a receive that waits is cancelled at once */
        (void)MPI_Cancel(&s->news);
        uint64_t start = mpi_now_us();
        for (unsigned round = 0; !done && mpi_now_us() - start < MPI_LAST_WORDS_US; round++) {
            if (MPI_Test(&s->news, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                break;
            if (!done)
                mpi_nap(round);
        }
    } else {
        done = 1;
    }
    mpi_leave();
    if (done) /* else MPI may still write into it */
        s->host->release(s->host->ctx, s, s->size);
}
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
