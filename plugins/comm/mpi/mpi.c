/* mpi.c - the transport's operations and its descriptor. */
/* Requests outlive the function that starts them, which the checker does not follow.
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
#include "group.h"

#include <string.h>

#define PAUSE_US 1000000u /* this process itself did not run for this long: no peer was late */

static uint64_t mpi_world_bytes(const void *opts, uint32_t ranks)
{
    (void)opts;
    (void)ranks;
    return 0;
}

/* ---- operations --------------------------------------------------------- */

static tsr_status one(struct mpi *s, void *stream, bool out, uint32_t peer, const void *src,
                      void *dst, uint64_t bytes, void **request, struct tsr_err *err)
{
    struct mpi_request *r = NULL;
    *request = NULL;
    if (peer >= s->ranks)
        return tsr_fail(err, TSR_E_INVAL, "mpi: rank %u does not exist, there are %u", peer,
                        s->ranks);
    mpi_enter();
    tsr_status st = mpi_request_new(s, stream, 1, bytes, &r, err);
    if (r) {
        st = mpi_part_start(s, r, out, MPI_KIND_MESSAGE, peer, src, dst, bytes, err);
        if (st == TSR_OK)
            *request = r;
        else
            mpi_request_release(s, r);
    }
    mpi_leave();
    return st;
}

static tsr_status mpi_send(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                           void **request, struct tsr_err *err)
{
    return one(self, stream, true, to, buf, NULL, bytes, request, err);
}

static tsr_status mpi_recv(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                           void **request, struct tsr_err *err)
{
    return one(self, stream, false, from, NULL, buf, bytes, request, err);
}

/* step: stride of the blocks for successive peers in `send` (0: the same for all). */
static tsr_status collective(struct mpi *s, void *stream, uint16_t kind, const void *send,
                             uint64_t step, void *recv, uint64_t bytes, void **request,
                             struct tsr_err *err)
{
    const unsigned char *from = send;
    unsigned char       *to = recv;
    struct mpi_request  *r = NULL;
    *request = NULL;
    mpi_enter();
    tsr_status st = mpi_request_new(s, stream, 2 * s->ranks, bytes, &r, err);
    if (r) {
        if (bytes)
            memmove(to + s->rank * bytes, from + s->rank * step, bytes);
        for (uint32_t i = 1; st == TSR_OK && i < s->ranks; i++) {
            uint32_t peer = (s->rank + i) % s->ranks, source = (s->rank + s->ranks - i) % s->ranks;
            st = mpi_part_start(s, r, false, kind, source, NULL, to + source * bytes, bytes, err);
            if (st == TSR_OK)
                st = mpi_part_start(s, r, true, kind, peer, from + peer * step, NULL, bytes, err);
        }
        if (st == TSR_OK)
            *request = r;
        else
            mpi_request_release(s, r);
    }
    mpi_leave();
    return st;
}

static tsr_status mpi_all_gather(void *self, void *stream, const void *send, void *recv,
                                 uint64_t bytes, void **request, struct tsr_err *err)
{
    return collective(self, stream, MPI_KIND_GATHER, send, 0, recv, bytes, request, err);
}

static tsr_status mpi_all_to_all(void *self, void *stream, const void *send, void *recv,
                                 uint64_t bytes, void **request, struct tsr_err *err)
{
    return collective(self, stream, MPI_KIND_ALL_TO_ALL, send, bytes, recv, bytes, request, err);
}

/* One round of progress. *over: the request has ended, with the returned status, and is freed. */
static tsr_status look(struct mpi *s, struct mpi_request *r, bool *over, struct tsr_err *err)
{
    mpi_enter();
    tsr_status st = mpi_hear(s, err);
    for (uint32_t i = 0; st == TSR_OK && i < r->n; i++)
        if (!r->part[i].done)
            st = mpi_part_test(s, r, &r->part[i], err);
    *over = st != TSR_OK || r->open == 0;
    if (*over)
        mpi_request_release(s, r);
    mpi_leave();
    return st;
}

static tsr_status mpi_test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    bool       over;
    tsr_status st = look(self, request, &over, err);
    *done = over;
    return st;
}

static tsr_status late(struct mpi *s, struct mpi_request *r, uint64_t deadline_us,
                       struct tsr_err *err)
{
    char   who[160] = "";
    size_t n = 0;
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        bool waits = false;
        for (uint32_t i = 0; i < r->n; i++)
            waits = waits || (!r->part[i].done && r->part[i].peer == rank);
        if (waits && n + 16 < sizeof who)
            n += (size_t)snprintf(who + n, sizeof who - n, "%s%u", n ? ", " : "", rank);
    }
    tsr_status st = tsr_fail(err, TSR_E_DEVICE,
                             "mpi: rank %u waited %llu us for rank %s; it is late or has died",
                             s->rank, (unsigned long long)deadline_us, who);
    mpi_enter();
    mpi_request_release(s, r);
    mpi_leave();
    return st;
}

static tsr_status mpi_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    struct mpi *s = self;
    uint64_t    start = mpi_now_us(), last = start;
    for (unsigned round = 0;; round++) {
        bool       over;
        tsr_status st = look(s, request, &over, err);
        if (over)
            return st;
        uint64_t now = mpi_now_us();
        start += now - last > PAUSE_US ? now - last : 0;
        last = now;
        if (now - start >= deadline_us)
            return late(s, request, deadline_us, err);
        if (s->host->cancelled(s->host->ctx)) {
            mpi_enter();
            mpi_request_release(s, request);
            mpi_leave();
            return tsr_fail(err, TSR_E_CANCELLED, "mpi: stopped by the user");
        }
        mpi_nap(round);
    }
}

static void mpi_abort(void *self)
{
    static int  ids[UINT16_MAX]; /* sent bytes must outlive this instance */
    struct mpi *s = self;
    mpi_enter();
    if (!s->aborted) {
        s->aborted = s->rank + 1;
        ids[s->rank] = (int)s->rank;
        for (uint32_t i = 0; i < s->ranks; i++) {
            MPI_Request r;
            if (i != s->rank && MPI_Isend(&ids[s->rank], 1, MPI_INT, mpi_rank_of(s, i), s->tag + 1,
                                          MPI_COMM_WORLD, &r) == MPI_SUCCESS)
                (void)MPI_Request_free(&r);
        }
    }
    mpi_leave();
}

static void mpi_counts(const void *self, struct tsr_transport_counts *c)
{
    const struct mpi *s = self;
    c->sent = s->sent;
    c->received = s->received;
    c->refused = s->refused;
}

static const struct tsr_transport_counts_v1 counts = { .struct_size = sizeof counts,
                                                       .read = mpi_counts };

static const void *mpi_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_TRANSPORT_COUNTS) == 0 ? &counts : NULL;
}

/* ---- descriptor --------------------------------------------------------- */

static const struct tsr_transport_v1 mpi_iface = {
    .struct_size = sizeof mpi_iface,
    .world_bytes = mpi_world_bytes,
    .create = mpi_create,
    .destroy = mpi_destroy,
    .send = mpi_send,
    .recv = mpi_recv,
    .all_gather = mpi_all_gather,
    .all_to_all = mpi_all_to_all,
    .test = mpi_test,
    .wait = mpi_wait,
    .abort = mpi_abort,
    .extension = mpi_extension,
    .needs = TSR_TRANSPORT_STATICS, /* library.c: MPI begins and ends once in a process */
};

static const struct tsr_option mpi_options[] = {
    TSR_OPTION_INT(struct mpi_opts, first, 0, 0, 1000000, NULL, "MPI rank of the group's rank 0."),
    TSR_OPTION_INT(struct mpi_opts, stride, 1, -1000000, 1000000, NULL,
                   "How far apart the group's ranks are among the MPI ranks; below 0: downwards."),
    TSR_OPTION_INT(struct mpi_opts, tag, 0, 0, 16000, NULL,
                   "Keeps groups apart that share processes: each has its own number."),
};

static const struct tsr_component mpi_component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_TRANSPORT,
    .name = "mpi",
    .summary = "Carries bytes between the processes of an MPI job.",
    .iface = &mpi_iface,
    .options = mpi_options,
    .n_options = sizeof mpi_options / sizeof mpi_options[0],
    .options_size = sizeof(struct mpi_opts),
};

static const struct tsr_component *const components[] = { &mpi_component };

TSR_PLUGIN_SYMBOL(mpi) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.mpi",  .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,
};
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
