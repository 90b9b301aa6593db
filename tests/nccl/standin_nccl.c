/* libnccl.so.2 as far as the transport nccl goes (standin.h).  The ranks of a communicator share a file
 * without a name, which the id tells; a ring of bytes goes from each to each. */
#include "../../plugins/comm/local/ring.h"
#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT   __attribute__((visibility("default")))
#define CAPACITY UINT64_C(4096) /* of a ring: larger messages need both sides */
#define FAULTS   8
#define PARTS    128 /* of a group: sends and receives */
#define RANKS    64

struct id {
    uint32_t magic;
    int32_t  pid, fd;
    uint32_t ranks_max;
};

struct shared {
    _Atomic uint32_t joined;
    uint32_t         zero;
    /* then the rings */
};

struct part {
    bool     out;
    int      peer;
    uint8_t *at;
    uint64_t bytes, done;
};

struct op {
    struct nc_comm_s *comm;
    uint64_t          number; /* operations of a communicator run one after the other */
    bool              begun;
    cu_stream         stream;
    int               n;
    struct part       part[PARTS];
};

struct nc_comm_s {
    int            rank, ranks, fd, users; /* users: the caller, and works on streams */
    struct shared *shared;
    uint64_t       bytes;
    bool           up, finalizing, finalized, aborted;
    int            polls; /* before the last call has ended */
    struct op     *pending;
    uint64_t       put, ran;
    uint64_t       out[RANKS], in[RANKS];
};

static struct {
    enum standin_fault what;
    int                ranks, rank;
} faults[FAULTS];
static int                   version = 22809, slow = 2;
static struct standin_counts counts;
static const char           *last = "";
static void (*tap)(const void *message, uint64_t bytes);
/* a group of the calling thread */
static _Thread_local int        group_depth;
static _Thread_local struct op *group;

/* ---- what tests inject -------------------------------------------------------------- */

EXPORT void standin_fault(enum standin_fault what, int ranks, int rank)
{
    bool put = what == STANDIN_NONE;
    standin_lock();
    for (int i = 0; i < FAULTS; i++) {
        if (what == STANDIN_NONE)
            faults[i].what = STANDIN_NONE;
        else if (!put && faults[i].what == STANDIN_NONE) {
            faults[i].what = what;
            faults[i].ranks = ranks;
            faults[i].rank = rank;
            put = true;
        }
    }
    standin_unlock();
}

EXPORT void standin_version(int v)
{
    version = v;
}

EXPORT void standin_tap(void (*see)(const void *message, uint64_t bytes))
{
    standin_lock();
    tap = see;
    standin_unlock();
}

EXPORT void standin_slow(int polls)
{
    slow = polls;
}

EXPORT struct standin_counts standin_counts(void)
{
    standin_lock();
    struct standin_counts now = counts;
    standin_unlock();
    return now;
}

static bool has(const struct nc_comm_s *c, enum standin_fault what)
{
    bool is = false;
    standin_lock();
    for (int i = 0; i < FAULTS; i++)
        is = is ||
             (faults[i].what == what && faults[i].ranks == c->ranks && faults[i].rank == c->rank);
    standin_unlock();
    return is;
}

static nc_result wrong(const char *text)
{
    last = text;
    counts.misused++;
    return 5;
}

/* ---- communicators ----------------------------------------------------------------- */

static uint64_t shared_bytes(int ranks)
{
    return sizeof(struct shared) +
           (uint64_t)ranks * (uint64_t)ranks * (sizeof(struct local_ring) + CAPACITY) + 64;
}

static struct local_ring *ring(const struct nc_comm_s *c, int from, int to)
{
    uint8_t *base = (uint8_t *)c->shared + 64;
    return (void *)(base +
                    (uint64_t)(from * c->ranks + to) * (sizeof(struct local_ring) + CAPACITY));
}

EXPORT nc_result ncclGetVersion(int *v)
{
    *v = version;
    return NC_OK;
}

EXPORT nc_result ncclGetUniqueId(nc_id *id)
{
    struct id x = { 0x1d1d1d1d, getpid(), memfd_create("standin", MFD_CLOEXEC), RANKS };
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, &x, sizeof x);
    if (x.fd < 0 || ftruncate(x.fd, (off_t)shared_bytes(RANKS)) != 0)
        return 2;
    return NC_OK;
}

static void drop(struct nc_comm_s *c)
{
    if (--c->users > 0)
        return;
    if (c->shared)
        (void)munmap(c->shared, c->bytes);
    if (c->fd >= 0)
        (void)close(c->fd);
    free(c);
}

EXPORT nc_result ncclCommInitRankConfig(nc_comm *out, int ranks, nc_id id, int rank,
                                        struct nc_config *config)
{
    struct id x;
    char      path[64];
    memcpy(&x, id.bytes, sizeof x);
    if (!standin_has_context() || x.magic != 0x1d1d1d1d || rank < 0 || rank >= ranks ||
        ranks > RANKS || config->magic != NC_MAGIC || config->size != sizeof *config ||
        config->blocking != 0)
        return wrong("ncclCommInitRankConfig");
    struct nc_comm_s *c = calloc(1, sizeof *c);
    if (!c)
        return 2;
    *c = (struct nc_comm_s){
        .rank = rank, .ranks = ranks, .fd = -1, .users = 1, .bytes = shared_bytes(ranks)
    };
    if (has(c, STANDIN_REFUSES) || getenv("TSR_STANDIN_REFUSES")) {
        free(c);
        last = "Duplicate GPU detected";
        if (x.pid == getpid())
            (void)close(x.fd);
        return 5;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", x.pid, x.fd);
    /* the maker of an id is rank 0 or the sender, and joins at once: it takes its file over */
    int fd = rank == 0 ? x.fd : open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        c->shared = p == MAP_FAILED ? NULL : p;
    }
    c->fd = fd;
    if (!c->shared) {
        last = "the id's process has gone";
        drop(c);
        return 2;
    }
    c->polls = slow;
    standin_lock();
    counts.communicators++;
    if (!has(c, STANDIN_NEVER_JOINS))
        atomic_fetch_add(&c->shared->joined, 1);
    standin_unlock();
    *out = c;
    return NC_IN_PROGRESS;
}

static bool move_part(struct nc_comm_s *c, struct part *p)
{
    uint64_t moved = 0;
    if (p->out)
        (void)local_ring_put(ring(c, c->rank, p->peer), CAPACITY, &c->out[p->peer], p->at + p->done,
                             p->bytes - p->done, &moved);
    else
        (void)local_ring_take(ring(c, p->peer, c->rank), CAPACITY, &c->in[p->peer], p->at + p->done,
                              p->bytes - p->done, &moved);
    p->done += moved;
    return p->done == p->bytes;
}

static bool run(void *arg)
{
    struct op        *o = arg;
    struct nc_comm_s *c = o->comm;
    bool              done = c->aborted;
    if (!done && o->number == c->ran && !has(c, STANDIN_HANGS)) {
        done = true;
        for (int i = 0; tap && !o->begun && i < o->n; i++)
            if (o->part[i].out && o->part[i].peer != c->rank)
                tap(o->part[i].at, o->part[i].bytes);
        o->begun = true;
        for (int i = 0; i < o->n; i++)
            done = move_part(c, &o->part[i]) && done;
    }
    if (!done)
        return false;
    c->ran++;
    drop(c);
    free(o);
    return true;
}

EXPORT nc_result ncclCommGetAsyncError(nc_comm c, nc_result *state)
{
    standin_lock();
    *state = NC_IN_PROGRESS;
    if (has(c, STANDIN_LOST) && c->up) {
        *state = 6;
        last = "a peer has gone";
    } else if (!c->up) {
        c->up = atomic_load(&c->shared->joined) >= (uint32_t)c->ranks &&
                !has(c, STANDIN_NEVER_JOINS) && --c->polls <= 0;
        if (c->up)
            *state = NC_OK;
    } else if (c->pending && --c->polls <= 0) {
        c->users++;
        *state = NC_OK;
        if (!standin_push(c->pending->stream, run, c->pending)) { /* its context is lost */
            c->users--;
            *state = 1; /* ncclUnhandledCudaError */
        }
        c->pending = NULL;
    } else if (!c->pending && (!c->finalizing || c->put == c->ran)) {
        c->finalized = c->finalizing;
        *state = NC_OK;
    }
    standin_unlock();
    standin_move();
    return NC_OK;
}

EXPORT nc_result ncclCommFinalize(nc_comm c)
{
    if (!c->up || c->pending || c->finalizing)
        return wrong("ncclCommFinalize");
    c->finalizing = true;
    return NC_IN_PROGRESS;
}

static nc_result end(struct nc_comm_s *c)
{
    standin_lock();
    counts.communicators--;
    if (c->pending) {
        free(c->pending);
        c->pending = NULL;
    }
    drop(c);
    standin_unlock();
    standin_move();
    return NC_OK;
}

/* Not under the lock: it is this call alone that hangs. */
static void hang(const struct nc_comm_s *c, enum standin_fault what)
{
    while (has(c, what))
        (void)usleep(100);
}

EXPORT nc_result ncclCommDestroy(nc_comm c)
{
    if (!c->finalized)
        return wrong("ncclCommDestroy");
    standin_lock();
    counts.ending++;
    standin_unlock();
    hang(c, STANDIN_END_HANGS);
    standin_lock();
    nc_result e = end(c);
    counts.finalized++;
    standin_unlock();
    return e;
}

EXPORT nc_result ncclCommAbort(nc_comm c)
{
    standin_lock();
    counts.aborting++;
    standin_unlock();
    hang(c, STANDIN_ABORT_HANGS);
    standin_lock();
    c->aborted = true;
    nc_result e = end(c);
    counts.aborted++; /* when it is over */
    standin_unlock();
    return e;
}

/* ---- operations -------------------------------------------------------------------- */

/* The group that collects for c, or what is wrong. */
static nc_result open_op(nc_comm c, cu_stream stream, struct op **o)
{
    if (!c->up || c->pending || c->finalizing || !standin_has_context() || !stream)
        return wrong("a call before the last one has ended");
    if (has(c, STANDIN_CALL_REFUSED)) {
        last = "refused";
        return 5;
    }
    if (!group) {
        group = calloc(1, sizeof *group);
        if (!group)
            return 2;
        group->comm = c;
        group->stream = stream;
    }
    *o = group;
    return group->comm == c && group->stream == stream && group->n < PARTS
               ? NC_OK
               : wrong("one communicator and stream in a group");
}

static nc_result add(nc_comm c, cu_stream stream, bool out, int peer, const void *buf,
                     uint64_t bytes)
{
    struct op *o;
    uint8_t   *p = standin_place(buf, bytes);
    nc_result  e = open_op(c, stream, &o);
    if (e != NC_OK)
        return e;
    if (!p || bytes == 0 || peer < 0 || peer >= c->ranks)
        return wrong("memory that is not the device's");
    o->part[o->n++] = (struct part){ .out = out, .peer = peer, .at = p, .bytes = bytes };
    return NC_OK;
}

static nc_result submit(void)
{
    struct op *o = group;
    group = NULL;
    if (!o)
        return NC_OK;
    o->number = o->comm->put++;
    o->comm->pending = o;
    o->comm->polls = slow;
    return NC_IN_PROGRESS;
}

static nc_result discard(nc_result e)
{
    free(group);
    group = NULL;
    return e;
}

EXPORT nc_result ncclGroupStart(void)
{
    group_depth++;
    return NC_OK;
}

EXPORT nc_result ncclGroupEnd(void)
{
    if (group_depth == 0)
        return wrong("ncclGroupEnd");
    return --group_depth == 0 ? submit() : NC_OK;
}

EXPORT nc_result ncclSend(const void *buf, size_t n, int type, int peer, nc_comm c, cu_stream s)
{
    nc_result e = type == NC_UINT8 ? add(c, s, true, peer, buf, n) : wrong("type");
    /* in a group, too, a call tells the communicator's state */
    return e != NC_OK ? discard(e) : group_depth ? NC_IN_PROGRESS : submit();
}

EXPORT nc_result ncclRecv(void *buf, size_t n, int type, int peer, nc_comm c, cu_stream s)
{
    nc_result e = type == NC_UINT8 ? add(c, s, false, peer, buf, n) : wrong("type");
    return e != NC_OK ? discard(e) : group_depth ? NC_OK : submit();
}

EXPORT nc_result ncclAllGather(const void *src, void *dst, size_t n, int type, nc_comm c,
                               cu_stream s)
{
    nc_result e = type == NC_UINT8 ? NC_OK : wrong("type");
    for (int i = 0; e == NC_OK && i < c->ranks; i++) {
        e = add(c, s, true, i, src, n);
        if (e == NC_OK)
            e = add(c, s, false, i, (uint8_t *)dst + (uint64_t)i * n, n);
    }
    return e != NC_OK ? discard(e) : group_depth ? NC_OK : submit();
}

EXPORT const char *ncclGetErrorString(nc_result e)
{
    return e == 5 ? "invalid usage" : e == 6 ? "remote process exited" : "system error";
}

EXPORT const char *ncclGetLastError(nc_comm c)
{
    (void)c;
    return last;
}
