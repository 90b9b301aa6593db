/* Transports: the rules about bytes that arrive.  The sums are the rules' own: a transport moves
 * bytes and the host adds in rank order. */
#include "conformance/transport/transport.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define U(x) ((unsigned long long)(x))

/* ---- sums ---------------------------------------------------------------------- */

#define NUMBERS UINT64_C(1031) /* a prime: no ring or packet divides it */

/* Whole numbers below 2^24: their sums are exact in F32. */
static float number(uint32_t rank, uint64_t i)
{
    return (float)((rank + UINT64_C(1)) * 1000 + i % 977);
}

static void sum(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    float *mine = tsr_conformance_rule_room(NUMBERS * 4);
    float *all = tsr_conformance_rule_room((uint64_t)g->ranks * NUMBERS * 4);
    for (uint64_t i = 0; i < NUMBERS; i++)
        mine[i] = number(rank, i);
    void *q =
        tsr_conformance_group_collect(g, self, rank, false, mine, all, sizeof(float) * NUMBERS);
    tsr_conformance_group_wait(g, self, rank, q);
    for (uint64_t i = 0; i < NUMBERS; i++) {
        float got = 0, want = 0;
        for (uint32_t r = 0; r < g->ranks; r++) {
            got = got + all[r * NUMBERS + i];
            want = want + number(r, i);
        }
        if (!(got == want))
            tsr_conformance_rule_fail(
                g->c,
                "the sum of number %llu over %u ranks is %.9g on rank %u, wanted "
                "%.9g",
                U(i), g->ranks, (double)got, rank, (double)want);
    }
}

void tsr_transport_rule_sums(struct tsr_conformance_case *c)
{
    for (uint32_t ranks = 1; ranks <= TSR_GROUP_MAX; ranks++) {
        struct tsr_conformance_group g;
        tsr_conformance_group_make(&g, c, ranks);
        tsr_conformance_group_run(&g, sum);
    }
}

/* ---- blocks to every rank -------------------------------------------------------- */

static void exchange(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    const uint64_t bytes = 4099;
    unsigned char *out = tsr_conformance_rule_room(g->ranks * bytes);
    unsigned char *in = tsr_conformance_rule_room(g->ranks * bytes);
    for (uint32_t r = 0; r < g->ranks; r++)
        tsr_conformance_group_fill(out + r * bytes, rank, r, 1, bytes);
    void *q = tsr_conformance_group_collect(g, self, rank, true, out, in, bytes);
    tsr_conformance_group_wait(g, self, rank, q);
    for (uint32_t r = 0; r < g->ranks; r++)
        tsr_conformance_group_check(g, rank, in + r * bytes, r, rank, 1, bytes, "all_to_all()");
}

void tsr_transport_rule_all_to_all(struct tsr_conformance_case *c)
{
    for (uint32_t ranks = 2; ranks <= TSR_GROUP_MAX; ranks++) {
        struct tsr_conformance_group g;
        tsr_conformance_group_make(&g, c, ranks);
        tsr_conformance_group_run(&g, exchange);
    }
}

/* Each rank to each other rank, step by step round the group. */
static void round_robin(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    const uint64_t bytes = 1021;
    for (uint32_t step = 1; step < g->ranks; step++) {
        uint32_t       to = (rank + step) % g->ranks, from = (rank + g->ranks - step) % g->ranks;
        unsigned char *out = tsr_conformance_rule_room(bytes),
                      *in = tsr_conformance_rule_room(bytes);
        tsr_conformance_group_fill(out, rank, to, step, bytes);
        void *s = tsr_conformance_group_send(g, self, rank, to, out, bytes);
        void *r = tsr_conformance_group_recv(g, self, rank, from, in, bytes);
        tsr_conformance_group_wait(g, self, rank, r);
        tsr_conformance_group_wait(g, self, rank, s);
        tsr_conformance_group_check(g, rank, in, from, rank, step, bytes, "a message");
    }
}

void tsr_transport_rule_messages(struct tsr_conformance_case *c)
{
    for (uint32_t ranks = 2; ranks <= TSR_GROUP_MAX; ranks += 3) {
        struct tsr_conformance_group g;
        tsr_conformance_group_make(&g, c, ranks);
        tsr_conformance_group_run(&g, round_robin);
    }
}

/* ---- sizes ------------------------------------------------------------------------ */

static const uint64_t sizes[] = { 0, 1, 2, 7, 251, 4099, 65537, 262147 };
#define N_SIZES (sizeof sizes / sizeof sizes[0])

/* Messages go one way only: another rule covers a blocking send() in an exchange. */
static void every_size(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    for (uint64_t i = 0; i < N_SIZES; i++) {
        uint64_t       n = sizes[i], all = n * g->ranks;
        unsigned char *out = tsr_conformance_guarded("send", all, 0),
                      *in = tsr_conformance_guarded("recv", all, 0xee);
        tsr_conformance_group_fill(out, rank, 0, i, n);
        tsr_conformance_group_wait(g, self, rank,
                                   tsr_conformance_group_collect(g, self, rank, false, out, in, n));
        for (uint32_t r = 0; r < g->ranks; r++)
            tsr_conformance_group_check(g, rank, in + r * n, r, 0, i, n, "all_gather()");
        for (uint32_t r = 0; r < g->ranks; r++)
            tsr_conformance_group_fill(out + r * n, rank, r, i, n);
        tsr_conformance_group_wait(g, self, rank,
                                   tsr_conformance_group_collect(g, self, rank, true, out, in, n));
        for (uint32_t r = 0; r < g->ranks; r++)
            tsr_conformance_group_check(g, rank, in + r * n, r, rank, i, n, "all_to_all()");
        for (uint32_t r = 0; r < g->ranks; r++)
            tsr_conformance_group_check(g, rank, out + r * n, rank, r, i, n,
                                        "what all_to_all() sent");
        if (!tsr_conformance_guarded_intact(in) || !tsr_conformance_guarded_intact(out))
            tsr_conformance_rule_fail(g->c, "a collective of %llu bytes writes beyond its buffer",
                                      U(n));
        unsigned char *one = tsr_conformance_guarded("the message", n, 0xee);
        if (rank == 0) {
            tsr_conformance_group_fill(one, 0, 1, i, n);
            tsr_conformance_group_wait(g, self, rank,
                                       tsr_conformance_group_send(g, self, rank, 1, one, n));
            tsr_conformance_group_check(g, rank, one, 0, 1, i, n, "what send() sent");
        } else if (rank == 1) {
            tsr_conformance_group_wait(g, self, rank,
                                       tsr_conformance_group_recv(g, self, rank, 0, one, n));
            tsr_conformance_group_check(g, rank, one, 0, 1, i, n, "a message");
        }
        if (!tsr_conformance_guarded_intact(one))
            tsr_conformance_rule_fail(g->c, "a message of %llu bytes writes beyond its buffer",
                                      U(n));
    }
}

void tsr_transport_rule_sizes(struct tsr_conformance_case *c)
{
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        struct tsr_conformance_group g;
        tsr_conformance_group_make(&g, c, ranks);
        tsr_conformance_group_run(&g, every_size);
    }
}

/* ---- counts ------------------------------------------------------------------------- */

static struct tsr_transport_counts counts_of(const struct tsr_conformance_group *g, void *self)
{
    struct tsr_transport_counts           n = { .struct_size = sizeof n };
    const struct tsr_transport_counts_v1 *t =
        g->t->extension ? g->t->extension(self, TSR_TRANSPORT_COUNTS) : NULL;
    if (!t)
        tsr_conformance_rule_skip(g->c, "it has no \"" TSR_TRANSPORT_COUNTS "\"");
    if (!TSR_HAS(struct tsr_transport_counts_v1, t, read))
        tsr_conformance_rule_fail(g->c, "read() of \"" TSR_TRANSPORT_COUNTS "\" is NULL");
    t->read(self, &n);
    return n;
}

/* Messages once round the group, of more bytes from each rank than from the one before it. */
static void counted(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    const uint32_t to = (rank + 1) % g->ranks, from = (rank + g->ranks - 1) % g->ranks;
    const uint64_t sent = 1000 + 100 * (uint64_t)rank, received = 1000 + 100 * (uint64_t)from;
    void          *out = tsr_conformance_rule_room(sent), *in = tsr_conformance_rule_room(received);
    const struct tsr_transport_counts a = counts_of(g, self);
    tsr_conformance_group_fill(out, rank, to, 0, sent);
    void *s = tsr_conformance_group_send(g, self, rank, to, out, sent);
    void *r = tsr_conformance_group_recv(g, self, rank, from, in, received);
    tsr_conformance_group_wait(g, self, rank, r);
    tsr_conformance_group_wait(g, self, rank, s);
    const struct tsr_transport_counts b = counts_of(g, self);
    if (b.sent - a.sent != sent || b.received - a.received != received || b.refused != a.refused)
        tsr_conformance_rule_fail(
            g->c,
            "rank %u sent %llu bytes and received %llu, and the counts rose by "
            "%llu and %llu, those of refused frames by %llu",
            rank, U(sent), U(received), U(b.sent - a.sent), U(b.received - a.received),
            U(b.refused - a.refused));
}

void tsr_transport_rule_counts(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    tsr_conformance_group_make(&g, c, 3);
    tsr_conformance_group_run(&g, counted);
}

/* ---- order, two groups, processes --------------------------------------------------- */

#define ROW 8u

static void in_a_row(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    const uint64_t bytes = 61;
    void          *q[ROW];
    unsigned char *buf = tsr_conformance_rule_room(ROW * bytes);
    for (uint64_t n = 0; n < ROW; n++) {
        if (rank == 0)
            tsr_conformance_group_fill(buf + n * bytes, 0, 1, n, bytes);
        q[n] = rank == 0 ? tsr_conformance_group_send(g, self, rank, 1, buf + n * bytes, bytes)
                         : tsr_conformance_group_recv(g, self, rank, 0, buf + n * bytes, bytes);
    }
    for (uint64_t n = ROW; n-- > 0;) /* the order of waits must not matter */
        tsr_conformance_group_wait(g, self, rank, q[n]);
    for (uint64_t n = 0; rank == 1 && n < ROW; n++)
        tsr_conformance_group_check(g, rank, buf + n * bytes, 0, 1, n, bytes,
                                    "one of 8 messages in flight");
}

void tsr_transport_rule_order(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    tsr_conformance_group_make(&g, c, 2);
    tsr_conformance_group_run(&g, in_a_row);
}

static struct tsr_conformance_group second; /* of the rule below; one rule runs in a process */

static void two_groups(const struct tsr_conformance_group *g, uint32_t rank, void *self)
{
    const uint64_t bytes = 509;
    void          *other = tsr_conformance_group_join(&second, rank);
    for (uint64_t n = 0; n < 8; n++) {
        unsigned char *a = tsr_conformance_rule_room(bytes), *b = tsr_conformance_rule_room(bytes);
        if (rank == 0) {
            tsr_conformance_group_fill(a, 0, 1, n, bytes);
            tsr_conformance_group_fill(b, 0, 1, n + 50, bytes);
        }
        void *p = rank == 0 ? tsr_conformance_group_send(g, self, rank, 1, a, bytes)
                            : tsr_conformance_group_recv(&second, other, rank, 0, b, bytes);
        void *q = rank == 0 ? tsr_conformance_group_send(&second, other, rank, 1, b, bytes)
                            : tsr_conformance_group_recv(g, self, rank, 0, a, bytes);
        tsr_conformance_group_wait(rank == 0 ? g : &second, rank == 0 ? self : other, rank, p);
        tsr_conformance_group_wait(rank == 0 ? &second : g, rank == 0 ? other : self, rank, q);
        tsr_conformance_group_check(g, rank, a, 0, 1, n, bytes,
                                    "a message of the first of two groups");
        tsr_conformance_group_check(g, rank, b, 0, 1, n + 50, bytes,
                                    "a message of the second of two groups");
    }
    second.t->destroy(other);
}

void tsr_transport_rule_two_groups(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    tsr_conformance_group_make(&g, c, 2);
    tsr_conformance_group_make(&second, c, 2);
    tsr_conformance_group_run(&g, two_groups);
}

#define ALL_WELL 86 /* exit code of a rank with correct results */

/* Ranks are processes by default.  A child that fails the rule ends with the verdict written, so
 * the parent has only to end too. */
void tsr_transport_rule_processes(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    pid_t                        pid[3];
    tsr_conformance_group_forked(c);
    tsr_conformance_group_make(&g, c, 3);
    if (g.bytes == 0)
        tsr_conformance_rule_skip(c, "world_bytes() is 0: the ranks do not meet through memory");
    for (uint32_t rank = 0; rank < 3; rank++) {
        pid[rank] = fork();
        if (pid[rank] < 0)
            tsr_conformance_rule_skip(c, "no process could be started");
        if (pid[rank] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a hang ends with the rule */
            void *self = tsr_conformance_group_join(&g, rank);
            sum(&g, rank, self);
            round_robin(&g, rank, self);
            g.t->destroy(self);
            _exit(ALL_WELL); /* runs none of the parent's handlers */
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        int   status = 0;
        pid_t ended = waitpid(-1, &status, 0);
        if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == ALL_WELL)
            continue;
        for (uint32_t rank = 0; rank < 3; rank++)
            if (pid[rank] != ended)
                (void)kill(pid[rank], SIGKILL);
        if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
            _exit(0); /* its verdict is this rule's */
        tsr_conformance_rule_fail(c, "a rank in its own process ended with status 0x%x", status);
    }
}
