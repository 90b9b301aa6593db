/* request.c - requests and their messages. */
/* Requests outlive the function that starts them, which the checker does not follow.
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
#include "group.h"

#include <string.h>

#define MAX_BYTES ((UINT64_C(1) << 31) - 1 - sizeof(struct mpi_frame)) /* MPI counts in int */

static unsigned char *new_frame(const struct mpi *s, uint64_t bytes)
{
    return s->host->alloc(s->host->ctx, sizeof(struct mpi_frame) + bytes, 64);
}

static void free_frame(const struct mpi *s, struct mpi_part *p)
{
    s->host->release(s->host->ctx, p->frame, sizeof(struct mpi_frame) + p->bytes);
    p->frame = NULL;
}

/* Has a rank aborted?  [entered] */
tsr_status mpi_hear(struct mpi *s, struct tsr_err *err)
{
    int done = 0;
    if (!s->aborted && s->news != MPI_REQUEST_NULL &&
        MPI_Test(&s->news, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
        s->aborted = (uint32_t)s->news_from + 1;
    return s->aborted
               ? tsr_fail(err, TSR_E_CANCELLED, "mpi: rank %u aborted the group", s->aborted - 1)
               : TSR_OK;
}

/* *out NULL with TSR_OK: too many are outstanding.  [entered] */
tsr_status mpi_request_new(struct mpi *s, void *stream, uint32_t parts, uint64_t bytes,
                           struct mpi_request **out, struct tsr_err *err)
{
    *out = NULL;
    if (stream)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "mpi: carries host memory only, the stream must be NULL");
    if (bytes > MAX_BYTES)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "mpi: a message of %llu bytes; at most %llu travel at once",
                        (unsigned long long)bytes, (unsigned long long)MAX_BYTES);
    tsr_status st = mpi_hear(s, err);
    if (st != TSR_OK || s->n_requests >= MPI_MAX_REQUESTS)
        return st;
    uint64_t            size = sizeof(struct mpi_request) + parts * sizeof(struct mpi_part);
    struct mpi_request *r = s->host->alloc(s->host->ctx, size, _Alignof(struct mpi_request));
    if (!r)
        return tsr_fail(err, TSR_E_NOMEM,
                        "out of memory: %llu bytes for a request of transport mpi",
                        (unsigned long long)size);
    memset(r, 0, size);
    r->size = size;
    r->next = s->requests;
    if (r->next)
        r->next->prev = r;
    s->requests = r;
    s->n_requests++;
    *out = r;
    return TSR_OK;
}

/* [entered] */
tsr_status mpi_part_start(struct mpi *s, struct mpi_request *r, bool out, uint16_t kind,
                          uint32_t peer, const void *src, void *dst, uint64_t bytes,
                          struct tsr_err *err)
{
    struct mpi_part *p = &r->part[r->n];
    struct mpi_link *l = &s->link[peer];
    if (l->broken)
        return tsr_fail(err, TSR_E_DEVICE,
                        "mpi: an earlier message between rank %u and rank %u has failed", s->rank,
                        peer);
    *p = (struct mpi_part){ .handle = MPI_REQUEST_NULL,
                            .bytes = bytes,
                            .peer = peer,
                            .kind = kind,
                            .out = out,
                            .dst = dst };
    p->frame = new_frame(s, bytes);
    if (!p->frame)
        return tsr_fail(err, TSR_E_NOMEM,
                        "out of memory: %llu bytes for a message of transport mpi",
                        (unsigned long long)bytes);
    int size = (int)(sizeof(struct mpi_frame) + bytes), code;
    if (out) {
        p->sequence = l->out++;
        mpi_frame_write(s, p, src);
        code = MPI_Isend(p->frame, size, MPI_BYTE, mpi_rank_of(s, peer), s->tag, MPI_COMM_WORLD,
                         &p->handle);
        if (peer != s->rank)
            s->sent += bytes;
    } else {
        p->sequence = l->in++;
        code = MPI_Irecv(p->frame, size, MPI_BYTE, mpi_rank_of(s, peer), s->tag, MPI_COMM_WORLD,
                         &p->handle);
    }
    if (code != MPI_SUCCESS) {
        free_frame(s, p);
        l->broken = true;
        return tsr_fail(err, TSR_E_DEVICE, "mpi: rank %u cannot reach rank %u: %s", s->rank, peer,
                        mpi_text(code));
    }
    r->n++;
    r->open++;
    return TSR_OK;
}

/* [entered] */
tsr_status mpi_part_test(struct mpi *s, struct mpi_request *r, struct mpi_part *p,
                         struct tsr_err *err)
{
    MPI_Status status;
    MPI_Count  got = 0;
    int        done = 0, code = MPI_Test(&p->handle, &done, &status), class = MPI_SUCCESS;
    tsr_status st = TSR_OK;
    if (code == MPI_SUCCESS && !done)
        return TSR_OK;
    p->done = true;
    r->open--;
    if (code != MPI_SUCCESS)
        (void)MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE)
        st = tsr_fail(err, TSR_E_DEVICE,
                      "mpi: rank %u asked for %llu bytes where rank %u sent more; all ranks must "
                      "start the same operations in the same order",
                      s->rank, (unsigned long long)p->bytes, p->peer);
    else if (code != MPI_SUCCESS)
        st = tsr_fail(err, TSR_E_DEVICE, "mpi: rank %u lost rank %u: %s", s->rank, p->peer,
                      mpi_text(code));
    else if (!p->out && MPI_Get_elements_x(&status, MPI_BYTE, &got) == MPI_SUCCESS)
        st = mpi_frame_read(s, p, got > 0 ? (uint64_t)got : 0, err);
    if (st != TSR_OK)
        s->link[p->peer].broken = true;
    free_frame(s, p);
    return st;
}

/* Gives up the open messages. One that already moves gets a moment; if MPI does not release it, MPI keeps
 * its memory. [entered] */
static void withdraw(struct mpi *s, struct mpi_part *p)
{
    uint64_t start = mpi_now_us();
    int      done = 0;
    s->link[p->peer].broken = true;
    if (!p->out)
        (void)MPI_Cancel(&p->handle);
    for (unsigned round = 0; !done && mpi_now_us() - start < MPI_LAST_WORDS_US; round++) {
        if (MPI_Test(&p->handle, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
        if (!done)
            mpi_nap(round);
    }
    if (done)
        free_frame(s, p);
    else
        (void)MPI_Request_free(&p->handle);
}

/* [entered] */
void mpi_request_release(struct mpi *s, struct mpi_request *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->part[i].done)
            withdraw(s, &r->part[i]);
    if (r->prev)
        r->prev->next = r->next;
    else
        s->requests = r->next;
    if (r->next)
        r->next->prev = r->prev;
    s->n_requests--;
    s->host->release(s->host->ctx, r, r->size);
}
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
