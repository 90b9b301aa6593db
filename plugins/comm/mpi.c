/* mpi - transport between the processes of an MPI job (`mpirun -n 4 tessera ...`).
 *
 * Every message is one MPI message: a head {magic, kind, sequence, size, epoch, CRCs} and the
 * payload, copied into memory of this plugin, so that a rank that gave up waiting may free its
 * buffers.  Nothing blocks: MPI_Isend, MPI_Irecv and MPI_Test, under a deadline.  Groups of one job
 * keep apart by tags; a second tag carries the news that a rank aborted.  MPI is entered by one
 * thread at a time.  MPI_Init waits for the other processes of the job, as MPI has it. */
/* Requests outlive the function that starts them, which the checker does not follow.
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
#include "crc32c.h"
#include "tessera/transport.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAME_MAGIC   0x4d525354u /* "TSRM" */
#define MAX_REQUESTS  256u
#define MAX_BYTES     ((UINT64_C(1) << 31) - 1 - sizeof(struct frame)) /* MPI counts in int */
#define SPIN_ROUNDS   2000u
#define NAP_NS        50000
#define LONG_NAP_NS   200000 /* of who waits for a long time */
#define LONG_ROUNDS   2200u
#define PAUSE_US      1000000u /* this process itself did not run for as long: nobody was waited for */
#define LAST_WORDS_US 100000u  /* of operations that are given up */
#define FAREWELL_US   2000000u /* for the others, before MPI_Finalize */

enum { KIND_MESSAGE = 1, KIND_GATHER = 2, KIND_ALL_TO_ALL = 3 };

struct frame {
    uint32_t magic;
    uint16_t kind, from;
    uint64_t sequence, bytes, epoch;
    uint32_t to, payload_crc;
    uint32_t zero, crc; /* of what stands before it */
};

struct mpi_opts {
    int64_t first, stride, tag;
};

struct part {
    MPI_Request    handle;
    unsigned char *frame; /* head and payload */
    void          *dst;   /* incoming */
    uint64_t       bytes, sequence;
    uint32_t       peer;
    uint16_t       kind;
    bool           out, done;
};

struct request {
    struct request *prev, *next;
    uint64_t        size; /* of this allocation */
    uint32_t        n, open;
    struct part     part[];
};

struct lane {
    uint64_t out, in; /* sequences */
    bool     broken;
};

struct mpi {
    const struct tsr_host *host;
    int                    first, stride, tag;
    uint32_t               rank, ranks, n_requests;
    uint64_t               epoch, size;
    uint64_t               sent, received, refused;
    struct request        *requests;
    MPI_Request            news; /* a rank aborted */
    int                    news_from;
    uint32_t               aborted; /* 1 + that rank */
    unsigned               crc_level;
    struct lane            lane[];
};

/* ---- the library ------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool            started; /* MPI was initialised here, and is to be finalised */

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void nap(unsigned round)
{
    const struct timespec t = { 0, round < LONG_ROUNDS ? NAP_NS : LONG_NAP_NS };
    if (round < SPIN_ROUNDS)
        (void)sched_yield();
    else
        (void)nanosleep(&t, NULL);
}

static const char *mpi_text(int code)
{
    static _Thread_local char text[MPI_MAX_ERROR_STRING + 1];
    int                       n = 0;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        (void)snprintf(text, sizeof text, "error %d", code);
    return text;
}

/* At the end of the process.  MPI_Finalize waits for the others without a deadline, so they are
 * asked first; without all of them the job ends as mpirun finds it. */
static void farewell(void)
{
    MPI_Request r;
    int         done = 0;
    if (!started || MPI_Ibarrier(MPI_COMM_WORLD, &r) != MPI_SUCCESS)
        return;
    uint64_t start = now_us();
    for (unsigned round = 0; !done && now_us() - start < FAREWELL_US; round++) {
        if (MPI_Test(&r, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        if (!done)
            nap(round);
    }
    if (done)
        (void)MPI_Finalize();
}

/* Without a launcher MPI_Init would start one of its own, or hang. */
static bool under_launcher(void)
{
    static const char *const marks[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                         "PMI_SIZE", "MPI_LOCALNRANKS" };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

/* [under lock] */
static tsr_status start_mpi(struct tsr_err *err)
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
        (void)atexit(farewell);
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

/* ---- parts ------------------------------------------------------------- */

static int mpi_rank(const struct mpi *s, uint32_t rank)
{
    return s->first + s->stride * (int)rank;
}

static unsigned char *new_frame(const struct mpi *s, uint64_t bytes)
{
    return s->host->alloc(s->host->ctx, sizeof(struct frame) + bytes, 64);
}

static void free_frame(const struct mpi *s, struct part *p)
{
    s->host->release(s->host->ctx, p->frame, sizeof(struct frame) + p->bytes);
    p->frame = NULL;
}

static void write_frame(const struct mpi *s, struct part *p, const void *src)
{
    struct frame f = { .magic = FRAME_MAGIC,
                       .kind = p->kind,
                       .from = (uint16_t)s->rank,
                       .sequence = p->sequence,
                       .bytes = p->bytes,
                       .epoch = s->epoch,
                       .to = p->peer };
    if (p->bytes)
        memcpy(p->frame + sizeof f, src, p->bytes);
    f.payload_crc = crc32c(s->crc_level, 0, p->frame + sizeof f, p->bytes);
    memcpy(p->frame, &f, sizeof f);
    f.crc = crc32c(s->crc_level, 0, p->frame, offsetof(struct frame, crc));
    memcpy(p->frame, &f, sizeof f);
}

static tsr_status refuse(struct mpi *s, const struct part *p, const char *what, struct tsr_err *err)
{
    s->refused++;
    return tsr_fail(err, TSR_E_DEVICE,
                    "mpi: rank %u received %s from rank %u (message %llu); it was refused", s->rank,
                    what, p->peer, (unsigned long long)p->sequence);
}

/* What came against what was asked for. */
static tsr_status read_frame(struct mpi *s, struct part *p, uint64_t got, struct tsr_err *err)
{
    static const char *const names[] = { "nothing", "a message", "all_gather", "all_to_all" };
    struct frame             f;
    if (got < sizeof f)
        return refuse(s, p, "a damaged frame", err);
    memcpy(&f, p->frame, sizeof f);
    if (f.magic != FRAME_MAGIC ||
        f.crc != crc32c(s->crc_level, 0, p->frame, offsetof(struct frame, crc)) ||
        f.from != p->peer || f.to != s->rank || f.sequence != p->sequence)
        return refuse(s, p, "a damaged frame", err);
    if (f.epoch != s->epoch)
        return refuse(s, p, "a frame of another epoch", err);
    if (f.kind != p->kind || f.bytes != p->bytes)
        return tsr_fail(err, TSR_E_DEVICE,
                        "mpi: rank %u started %s of %llu bytes where rank %u sent %s of %llu; all "
                        "ranks must start the same operations in the same order",
                        s->rank, names[p->kind], (unsigned long long)p->bytes, p->peer,
                        names[f.kind <= KIND_ALL_TO_ALL ? f.kind : 0], (unsigned long long)f.bytes);
    if (got != sizeof f + p->bytes ||
        f.payload_crc != crc32c(s->crc_level, 0, p->frame + sizeof f, p->bytes))
        return refuse(s, p, "damaged bytes", err);
    if (p->bytes)
        memcpy(p->dst, p->frame + sizeof f, p->bytes);
    if (p->peer != s->rank)
        s->received += p->bytes;
    return TSR_OK;
}

/* [under lock] */
static tsr_status start_part(struct mpi *s, struct request *r, bool out, uint16_t kind,
                             uint32_t peer, const void *src, void *dst, uint64_t bytes,
                             struct tsr_err *err)
{
    struct part *p = &r->part[r->n];
    struct lane *l = &s->lane[peer];
    if (l->broken)
        return tsr_fail(err, TSR_E_DEVICE,
                        "mpi: an earlier message between rank %u and rank %u has failed", s->rank,
                        peer);
    *p = (struct part){ .handle = MPI_REQUEST_NULL,
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
    int size = (int)(sizeof(struct frame) + bytes), code;
    if (out) {
        p->sequence = l->out++;
        write_frame(s, p, src);
        code = MPI_Isend(p->frame, size, MPI_BYTE, mpi_rank(s, peer), s->tag, MPI_COMM_WORLD,
                         &p->handle);
        if (peer != s->rank)
            s->sent += bytes;
    } else {
        p->sequence = l->in++;
        code = MPI_Irecv(p->frame, size, MPI_BYTE, mpi_rank(s, peer), s->tag, MPI_COMM_WORLD,
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

/* [under lock] */
static tsr_status test_part(struct mpi *s, struct request *r, struct part *p, struct tsr_err *err)
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
        st = read_frame(s, p, got > 0 ? (uint64_t)got : 0, err);
    if (st != TSR_OK)
        s->lane[p->peer].broken = true;
    free_frame(s, p);
    return st;
}

/* Gives up what is open.  A message that is already moving gets a moment; where MPI does not let go
 * of it, its memory stays with MPI.  [under lock] */
static void withdraw(struct mpi *s, struct part *p)
{
    uint64_t start = now_us();
    int      done = 0;
    s->lane[p->peer].broken = true;
    if (!p->out)
        (void)MPI_Cancel(&p->handle);
    for (unsigned round = 0; !done && now_us() - start < LAST_WORDS_US; round++) {
        if (MPI_Test(&p->handle, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
        if (!done)
            nap(round);
    }
    if (done)
        free_frame(s, p);
    else
        (void)MPI_Request_free(&p->handle);
}

/* [under lock] */
static void release_request(struct mpi *s, struct request *r)
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

/* ---- life --------------------------------------------------------------- */

static uint64_t mpi_world_bytes(const void *opts, uint32_t ranks)
{
    (void)opts;
    (void)ranks;
    return 0;
}

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

static tsr_status mpi_create(const struct tsr_host *host, const void *opts,
                             const struct tsr_transport_world *world, void **self,
                             struct tsr_err *err)
{
    const struct mpi_opts *o = opts;
    (void)pthread_mutex_lock(&lock);
    tsr_status st = start_mpi(err);
    if (st == TSR_OK)
        st = check_world(o, world, err);
    uint64_t    size = sizeof(struct mpi) + (uint64_t)world->ranks * sizeof(struct lane);
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
        s->crc_level = crc32c_level_here();
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
    (void)pthread_mutex_unlock(&lock);
    *self = s;
    return st;
}

static void mpi_destroy(void *self)
{
    struct mpi *s = self;
    int         done = 0;
    if (!s)
        return;
    (void)pthread_mutex_lock(&lock);
    while (s->requests)
        release_request(s, s->requests);
    if (s->news != MPI_REQUEST_NULL) { /* a receive that waits is cancelled at once */
        (void)MPI_Cancel(&s->news);
        uint64_t start = now_us();
        while (!done && now_us() - start < LAST_WORDS_US)
            if (MPI_Test(&s->news, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                break;
    } else {
        done = 1;
    }
    (void)pthread_mutex_unlock(&lock);
    if (done) /* else MPI may still write into it */
        s->host->release(s->host->ctx, s, s->size);
}

/* ---- operations --------------------------------------------------------- */

/* Has a rank aborted?  [under lock] */
static tsr_status hear(struct mpi *s, struct tsr_err *err)
{
    int done = 0;
    if (!s->aborted && s->news != MPI_REQUEST_NULL &&
        MPI_Test(&s->news, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
        s->aborted = (uint32_t)s->news_from + 1;
    return s->aborted
               ? tsr_fail(err, TSR_E_CANCELLED, "mpi: rank %u aborted the group", s->aborted - 1)
               : TSR_OK;
}

/* *out NULL with TSR_OK: too many are outstanding.  [under lock] */
static tsr_status new_request(struct mpi *s, void *stream, uint32_t parts, uint64_t bytes,
                              struct request **out, struct tsr_err *err)
{
    *out = NULL;
    if (stream)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "mpi: carries host memory only, the stream must be NULL");
    if (bytes > MAX_BYTES)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "mpi: a message of %llu bytes; at most %llu travel at once",
                        (unsigned long long)bytes, (unsigned long long)MAX_BYTES);
    tsr_status st = hear(s, err);
    if (st != TSR_OK || s->n_requests >= MAX_REQUESTS)
        return st;
    uint64_t        size = sizeof(struct request) + parts * sizeof(struct part);
    struct request *r = s->host->alloc(s->host->ctx, size, _Alignof(struct request));
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

static tsr_status one(struct mpi *s, void *stream, bool out, uint32_t peer, const void *src,
                      void *dst, uint64_t bytes, void **request, struct tsr_err *err)
{
    struct request *r = NULL;
    *request = NULL;
    if (peer >= s->ranks)
        return tsr_fail(err, TSR_E_INVAL, "mpi: rank %u does not exist, there are %u", peer,
                        s->ranks);
    (void)pthread_mutex_lock(&lock);
    tsr_status st = new_request(s, stream, 1, bytes, &r, err);
    if (r) {
        st = start_part(s, r, out, KIND_MESSAGE, peer, src, dst, bytes, err);
        if (st == TSR_OK)
            *request = r;
        else
            release_request(s, r);
    }
    (void)pthread_mutex_unlock(&lock);
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

/* step: how far the blocks for successive peers lie apart in `send` (0: the same for all). */
static tsr_status collective(struct mpi *s, void *stream, uint16_t kind, const void *send,
                             uint64_t step, void *recv, uint64_t bytes, void **request,
                             struct tsr_err *err)
{
    const unsigned char *from = send;
    unsigned char       *to = recv;
    struct request      *r = NULL;
    *request = NULL;
    (void)pthread_mutex_lock(&lock);
    tsr_status st = new_request(s, stream, 2 * s->ranks, bytes, &r, err);
    if (r) {
        if (bytes)
            memmove(to + s->rank * bytes, from + s->rank * step, bytes);
        for (uint32_t i = 1; st == TSR_OK && i < s->ranks; i++) {
            uint32_t peer = (s->rank + i) % s->ranks, source = (s->rank + s->ranks - i) % s->ranks;
            st = start_part(s, r, false, kind, source, NULL, to + source * bytes, bytes, err);
            if (st == TSR_OK)
                st = start_part(s, r, true, kind, peer, from + peer * step, NULL, bytes, err);
        }
        if (st == TSR_OK)
            *request = r;
        else
            release_request(s, r);
    }
    (void)pthread_mutex_unlock(&lock);
    return st;
}

static tsr_status mpi_all_gather(void *self, void *stream, const void *send, void *recv,
                                 uint64_t bytes, void **request, struct tsr_err *err)
{
    return collective(self, stream, KIND_GATHER, send, 0, recv, bytes, request, err);
}

static tsr_status mpi_all_to_all(void *self, void *stream, const void *send, void *recv,
                                 uint64_t bytes, void **request, struct tsr_err *err)
{
    return collective(self, stream, KIND_ALL_TO_ALL, send, bytes, recv, bytes, request, err);
}

/* One round of progress.  *over: the request has ended, with the status returned, and is gone. */
static tsr_status look(struct mpi *s, struct request *r, bool *over, struct tsr_err *err)
{
    (void)pthread_mutex_lock(&lock);
    tsr_status st = hear(s, err);
    for (uint32_t i = 0; st == TSR_OK && i < r->n; i++)
        if (!r->part[i].done)
            st = test_part(s, r, &r->part[i], err);
    *over = st != TSR_OK || r->open == 0;
    if (*over)
        release_request(s, r);
    (void)pthread_mutex_unlock(&lock);
    return st;
}

static tsr_status mpi_test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    bool       over;
    tsr_status st = look(self, request, &over, err);
    *done = over;
    return st;
}

static tsr_status late(struct mpi *s, struct request *r, uint64_t deadline_us, struct tsr_err *err)
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
    (void)pthread_mutex_lock(&lock);
    release_request(s, r);
    (void)pthread_mutex_unlock(&lock);
    return st;
}

static tsr_status mpi_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    struct mpi *s = self;
    uint64_t    start = now_us(), last = start;
    for (unsigned round = 0;; round++) {
        bool       over;
        tsr_status st = look(s, request, &over, err);
        if (over)
            return st;
        uint64_t now = now_us();
        start += now - last > PAUSE_US ? now - last : 0;
        last = now;
        if (now - start >= deadline_us)
            return late(s, request, deadline_us, err);
        if (s->host->cancelled(s->host->ctx)) {
            (void)pthread_mutex_lock(&lock);
            release_request(s, request);
            (void)pthread_mutex_unlock(&lock);
            return tsr_fail(err, TSR_E_CANCELLED, "mpi: stopped by the user");
        }
        nap(round);
    }
}

static void mpi_abort(void *self)
{
    static int  ids[UINT16_MAX]; /* what is sent must outlive this instance */
    struct mpi *s = self;
    (void)pthread_mutex_lock(&lock);
    if (!s->aborted) {
        s->aborted = s->rank + 1;
        ids[s->rank] = (int)s->rank;
        for (uint32_t i = 0; i < s->ranks; i++) {
            MPI_Request r;
            if (i != s->rank && MPI_Isend(&ids[s->rank], 1, MPI_INT, mpi_rank(s, i), s->tag + 1,
                                          MPI_COMM_WORLD, &r) == MPI_SUCCESS)
                (void)MPI_Request_free(&r);
        }
    }
    (void)pthread_mutex_unlock(&lock);
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
