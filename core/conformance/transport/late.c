/* Transports: behaviour when a rank is late, leaves, dies or aborts. */
#include "conformance/transport/transport.h"

#include "base/clock.h"

#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define U(x)        ((unsigned long long)(x))
#define DEADLINE_US UINT64_C(200000)
#define BIG         UINT64_C(1000003) /* more than any buffer of a pair holds by default */

/* How much later than its deadline wait() may return: a loaded machine can delay a process for seconds; a
 * wait without a deadline never returns. */
#define GRACE_US UINT64_C(5000000)

/* True when the text names the rank as a whole number: "rank 1", not "rank 10". */
static bool names_rank(const char *text, uint32_t rank)
{
    char number[16];
    int  n = snprintf(number, sizeof number, "%u", rank);
    for (const char *p = text; (p = strstr(p, number)) != NULL; p++)
        if ((p == text || !isdigit((unsigned char)p[-1])) && !isdigit((unsigned char)p[n]))
            return true;
    return false;
}

/* A thread that fails the rule when the call in front of it has not returned in time; without a
 * `what` it skips it. */
struct watch {
    struct tsr_conformance_case *c;
    const char                  *what;
    atomic_bool                  over;
    pthread_t                    id;
};

static void *look(void *arg)
{
    struct watch *w = arg;
    for (uint64_t start = tsr_now_us(); !atomic_load(&w->over); (void)usleep(2000)) {
        if (tsr_now_us() - start <= GRACE_US)
            continue;
        if (!w->what)
            tsr_conformance_rule_skip(w->c,
                                      "wait() keeps no deadline, which is transport-deadline's");
        tsr_conformance_rule_fail(w->c, "%s has not returned after %llu us", w->what, U(GRACE_US));
    }
    return NULL;
}

static void watch_begin(struct watch *w, struct tsr_conformance_case *c, const char *what)
{
    tsr_conformance_group_forked(c);
    w->c = c;
    w->what = what;
    atomic_init(&w->over, false);
    if (pthread_create(&w->id, NULL, look, w) != 0)
        tsr_conformance_rule_skip(c, "no thread could be started");
}

static void watch_end(struct watch *w)
{
    atomic_store(&w->over, true);
    (void)pthread_join(w->id, NULL);
}

/* ---- late ----------------------------------------------------------------- */

/* All 3 ranks have joined; rank 2 does nothing. Everything on one thread. */
void tsr_transport_rule_deadline(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    void                        *self[3];
    tsr_conformance_group_make(&g, c, 3);
    for (uint32_t r = 0; r < 3; r++)
        self[r] = tsr_conformance_group_join(&g, r);
    unsigned char *buf = tsr_conformance_rule_room(3 * BIG),
                  *in = tsr_conformance_rule_room(3 * BIG);
    struct watch w;
    watch_begin(&w, c, "wait() with a deadline, three times for a rank that is late,");
    for (uint32_t i = 0; i < 3; i++) {
        /* each on a rank without earlier operations: rank 1 has only the collective in flight */
        uint32_t    rank = i == 2 ? 1 : 0;
        const char *what = i == 0 ? "recv()" : i == 1 ? "send()" : "all_gather()";
        void       *q = i == 0 ? tsr_conformance_group_recv(&g, self[rank], rank, 2, in, BIG)
                        : i == 1
                            ? tsr_conformance_group_send(&g, self[rank], rank, 2, buf, BIG)
                            : tsr_conformance_group_collect(&g, self[rank], rank, false, buf, in, BIG);

        struct tsr_errbuf e = TSR_ERRBUF(e);
        uint64_t          start = tsr_now_us();
        tsr_status        st = g.t->wait(self[rank], q, DEADLINE_US, &e.err);
        uint64_t          took = tsr_now_us() - start;
        if (st == TSR_OK && i == 1)
            continue; /* the transport has room for all of it and need not wait */
        tsr_conformance_rule_refused(c, st, TSR_E_DEVICE, &e, "wait() for a rank that is late, %s",
                                     what);
        if (took < DEADLINE_US || took > DEADLINE_US + GRACE_US)
            tsr_conformance_rule_fail(
                c,
                "wait() for a rank that is late, %s: returned after %llu us, its "
                "deadline was %llu",
                what, U(took), U(DEADLINE_US));
        if (!names_rank(e.text, 2))
            tsr_conformance_rule_fail(
                c, "wait() for a rank that is late, %s: \"%s\" does not name rank 2", what, e.text);
    }
}

/* ---- leaves and dies --------------------------------------------------------- */

/* Without any deadline the rules below would only repeat this failure. */
static void need_deadline(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct watch                 w;
    tsr_conformance_group_make(&g, c, 2);
    void *self = tsr_conformance_group_join(&g, 0), *peer = tsr_conformance_group_join(&g, 1);
    void *q = tsr_conformance_group_recv(&g, self, 0, 1, tsr_conformance_rule_room(64), 64);
    watch_begin(&w, c, NULL);
    (void)g.t->wait(self, q, DEADLINE_US / 4, NULL);
    watch_end(&w);
    g.t->destroy(peer);
    g.t->destroy(self);
    tsr_conformance_group_free(&g);
}

void tsr_transport_rule_peer_leaves(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct watch                 w;
    need_deadline(c);
    tsr_conformance_group_make(&g, c, 2);
    void *self = tsr_conformance_group_join(&g, 0), *peer = tsr_conformance_group_join(&g, 1);
    unsigned char    *in = tsr_conformance_rule_room(BIG);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = tsr_conformance_group_recv(&g, self, 0, 1, in, BIG);
    g.t->destroy(peer);
    watch_begin(&w, c, "wait() for a rank that has left the group");
    tsr_status st = g.t->wait(self, q, DEADLINE_US, &e.err);
    watch_end(&w);
    tsr_conformance_rule_refused(c, st, TSR_E_DEVICE, &e,
                                 "wait() for a rank that has left the group");
}

/* Rank 1 is a process that dies with half a message on its way. */
void tsr_transport_rule_peer_dies(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct watch                 w;
    need_deadline(c);
    tsr_conformance_group_make(&g, c, 2);
    if (g.bytes == 0)
        tsr_conformance_rule_skip(c, "world_bytes() is 0: the ranks do not meet through memory");
    pid_t pid = fork();
    if (pid < 0)
        tsr_conformance_rule_skip(c, "no process could be started");
    if (pid == 0) {
        unsigned char *out = tsr_conformance_rule_room(BIG);
        tsr_conformance_group_fill(out, 1, 0, 3, BIG);
        void *self = tsr_conformance_group_join(&g, 1), *q = NULL;
        (void)alarm(3); /* also where send() waits for the peer */
        (void)g.t->send(self, NULL, 0, out, BIG, &q, NULL);
        (void)raise(SIGKILL);
        _exit(1);
    }
    int status;
    (void)waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status))
        tsr_conformance_rule_fail(c, "rank 1 could not start a send of %llu bytes", U(BIG));
    void             *self = tsr_conformance_group_join(&g, 0);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    unsigned char    *in = tsr_conformance_rule_room(BIG);
    void             *q = tsr_conformance_group_recv(&g, self, 0, 1, in, BIG);
    watch_begin(&w, c, "wait() for a rank whose process was killed");
    tsr_status st = g.t->wait(self, q, DEADLINE_US, &e.err);
    watch_end(&w);
    if (st == TSR_OK) /* then the transport had accepted all of it in time */
        tsr_conformance_group_check(&g, 0, in, 1, 0, 3, BIG,
                                    "the message of a rank that was killed, said done,");
    else
        tsr_conformance_rule_refused(c, st, TSR_E_DEVICE, &e,
                                     "wait() for a rank whose process was killed");
}

/* ---- abort -------------------------------------------------------------------- */

static atomic_uint waiting; /* ranks that are about to wait; a rule runs once in a process */

static void aborted(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    unsigned char    *in = tsr_conformance_rule_room(BIG);
    uint32_t          last = g->ranks - 1;
    void             *q = NULL;
    if (rank != last)
        q = tsr_conformance_group_recv(g, self, rank, last, in, BIG);
    atomic_fetch_add(&waiting, 1);
    if (rank == last) {
        while (atomic_load(&waiting) < g->ranks)
            (void)usleep(100);
        (void)usleep(20000); /* most of them wait by now; the others must fail as well */
        g->t->abort(self);
    } else {
        uint64_t   start = tsr_now_us();
        tsr_status st = g->t->wait(self, q, TSR_GROUP_LONG_US, &e.err);
        tsr_conformance_rule_refused(g->c, st, TSR_E_CANCELLED, &e,
                                     "wait() in a group that was aborted");
        if (tsr_now_us() - start > GRACE_US)
            tsr_conformance_rule_fail(
                g->c, "wait() in a group that was aborted took %llu us, wanted soon",
                U(tsr_now_us() - start));
    }
    /* a new operation fails too, at the start or at the wait */
    q = NULL;
    e.text[0] = '\0';
    tsr_status st = g->t->recv(self, NULL, rank == 0 ? 1 : 0, in, 64, &q, &e.err);
    if (st == TSR_OK && q)
        st = g->t->wait(self, q, TSR_GROUP_LONG_US, &e.err);
    tsr_conformance_rule_refused(g->c, st, TSR_E_CANCELLED, &e, "recv() after abort() on rank %u",
                                 rank);
}

void tsr_transport_rule_abort(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    tsr_conformance_group_make(&g, c, 3);
    tsr_conformance_group_run(&g, aborted);
}

/* ---- only wait() may block -------------------------------------------------------- */

void tsr_transport_rule_create(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct watch                 w;
    void                        *self[3];
    tsr_conformance_group_make(&g, c, 3);
    watch_begin(&w, c, "create() of a rank whose peers come later");
    for (uint32_t r = 3; r-- > 0;)
        self[r] = tsr_conformance_group_join(&g, r);
    watch_end(&w);
    for (uint32_t r = 0; r < 3; r++)
        g.t->destroy(self[r]);
}

#define MANY  64u
#define PIECE UINT64_C(10007)

/* Rank 0 starts everything before rank 1 has looked once. */
void tsr_transport_rule_starts(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct watch                 w;
    void                        *out[MANY], *in[MANY];
    uint32_t                     sent = 0, got = 0;
    tsr_conformance_group_make(&g, c, 2);
    void *self[2] = { tsr_conformance_group_join(&g, 0), tsr_conformance_group_join(&g, 1) };
    unsigned char *a = tsr_conformance_rule_room(MANY * PIECE),
                  *b = tsr_conformance_rule_room(MANY * PIECE);
    watch_begin(&w, c, "starting operations whose peer is busy");
    for (uint32_t i = 0; i < MANY && sent == i; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_conformance_group_fill(a + i * PIECE, 0, 1, i, PIECE);
        out[i] = NULL;
        tsr_conformance_rule_ok(c,
                                g.t->send(self[0], NULL, 1, a + i * PIECE, PIECE, &out[i], &e.err),
                                &e, "send() number %u in flight", i);
        sent += out[i] != NULL;
    }
    watch_end(&w);
    if (sent == 0)
        tsr_conformance_rule_fail(
            c, "the first send() asks to be started again although nothing is in flight");
    for (; got < sent; got++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        in[got] = NULL;
        tsr_conformance_rule_ok(c,
                                g.t->recv(self[1], NULL, 0, b + got * PIECE, PIECE, &in[got],
                                          &e.err),
                                &e, "recv() number %u in flight", got);
        if (!in[got])
            tsr_conformance_rule_skip(c, "only %u receives fit in flight", got);
    }
    /* both ranks are on this thread: look at them in turn */
    uint32_t open = 2 * sent;
    for (uint64_t start = tsr_now_us(); open > 0 && tsr_now_us() - start < TSR_GROUP_LONG_US;)
        for (uint32_t i = 0; i < sent; i++)
            for (uint32_t side = 0; side < 2; side++) {
                struct tsr_errbuf e = TSR_ERRBUF(e);
                void            **q = side == 0 ? &out[i] : &in[i];
                int32_t           done = 0;
                if (!*q)
                    continue;
                tsr_conformance_rule_ok(c, g.t->test(self[side], *q, &done, &e.err), &e, "test()");
                if (done) {
                    *q = NULL;
                    open--;
                }
            }
    if (open > 0)
        tsr_conformance_rule_fail(c, "%u of %u operations have not ended after %llu us of test()",
                                  open, 2 * sent, U(TSR_GROUP_LONG_US));
    for (uint32_t i = 0; i < sent; i++)
        tsr_conformance_group_check(&g, 1, b + i * PIECE, 0, 1, i, PIECE,
                                    "one of many messages in flight");
}

void tsr_transport_rule_test(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct watch                 w;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    int32_t                      done = 0;
    tsr_conformance_group_make(&g, c, 2);
    void *self[2] = { tsr_conformance_group_join(&g, 0), tsr_conformance_group_join(&g, 1) };
    unsigned char out[64], *in = tsr_conformance_rule_room(sizeof out);
    void         *r = tsr_conformance_group_recv(&g, self[0], 0, 1, in, sizeof out);
    watch_begin(&w, c, "test() of an operation whose peer has not begun");
    for (uint32_t i = 0; i < 100; i++) {
        tsr_conformance_rule_ok(c, g.t->test(self[0], r, &done, &e.err), &e, "test()");
        if (done)
            tsr_conformance_rule_fail(
                c, "test() says that a message has arrived which was never sent");
    }
    watch_end(&w);
    tsr_conformance_group_fill(out, 1, 0, 9, sizeof out);
    void *s = tsr_conformance_group_send(&g, self[1], 1, 0, out, sizeof out);
    for (uint64_t start = tsr_now_us(); r || s;) {
        if (tsr_now_us() - start > TSR_GROUP_LONG_US)
            tsr_conformance_rule_fail(c, "test() does not say that a message of %zu bytes has %s",
                                      sizeof out, r ? "arrived" : "left");
        for (uint32_t i = 0; i < 2; i++) {
            void **q = i == 0 ? &r : &s;
            if (!*q)
                continue;
            done = 0;
            tsr_conformance_rule_ok(c, g.t->test(self[i], *q, &done, &e.err), &e, "test()");
            if (done)
                *q = NULL;
        }
    }
    tsr_conformance_group_check(&g, 0, in, 1, 0, 9, sizeof out,
                                "a message that test() called done");
}
