/* Messages between stages: long ones over slow links, ones that stop in the middle, many at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/clock.h"
#include "base/rng.h"
#include "comm/flow.h"
#include "plugin_open.h"
#include "runtime/edge.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LONG_US UINT64_C(60000000) /* far above what a test takes: only a hang reaches it */

static struct tsr_registry    *registry;
static struct tsr_plugin_found found;

static const struct tsr_runtime_frame_limits limits = {
    .tokens = 4096, .slots = 8, .hidden = 4096, .vocab = 100
};

static unsigned char byte_of(uint64_t message, uint64_t i)
{
    return (unsigned char)((i * 2654435761u + message * 40503u + (i >> 9)) >> 7);
}

/* ---- a micro-batch ------------------------------------------------------ */

static struct tsr_runtime_micro_batch *work(uint32_t tokens)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_runtime_micro_batch *b = calloc(1, sizeof *b);
    assert_non_null(b);
    tsr_runtime_frame_make(&b->head, TSR_RUNTIME_FRAME_WORK);
    b->head.tokens = tokens;
    b->cols = limits.hidden;
    assert_int_equal(tsr_runtime_micro_batch_reserve(b, &limits, true, false, &e.err), TSR_OK);
    for (uint32_t i = 0; i < tokens; i++)
        b->token[i] = (struct tsr_engine_token){ .id = i % 100, .slot = i % 8, .ahead = 3 * i };
    for (uint64_t i = 0; i < tokens * limits.hidden; i++)
        b->rows[i] = (float)((int64_t)(i * 7919u % 100003u) - 50000) / 64.0f;
    return b;
}

struct sender {
    struct tsr_runtime_edge_end    *end;
    struct tsr_runtime_micro_batch *b;
    tsr_status                      st;
    struct tsr_errbuf               e;
};

static void *send_one(void *arg)
{
    struct sender *s = arg;
    s->st = tsr_runtime_edge_send(s->end, s->b, &s->e.err);
    return NULL;
}

static void open_edge(struct tsr_runtime_edge *e, struct tsr_runtime_edge_end *from,
                      struct tsr_runtime_edge_end *to, const char *rows_over, uint64_t deadline_us)
{
    struct tsr_errbuf b = TSR_ERRBUF(b);
    *e = (struct tsr_runtime_edge){ .from = 3,
                                    .to = 5,
                                    .kind = TSR_RUNTIME_EDGE_ROWS,
                                    .heads_over = "local",
                                    .rows_over = rows_over,
                                    .epoch = 1 };
    assert_int_equal(tsr_runtime_edge_create(e, registry, &b.err), TSR_OK);
    assert_int_equal(tsr_runtime_edge_open(from, e, true, deadline_us, NULL, registry, &b.err),
                     TSR_OK);
    assert_int_equal(tsr_runtime_edge_open(to, e, false, deadline_us, NULL, registry, &b.err),
                     TSR_OK);
}

static void close_edge(struct tsr_runtime_edge *e, struct tsr_runtime_edge_end *from,
                       struct tsr_runtime_edge_end *to)
{
    tsr_runtime_edge_close(from);
    tsr_runtime_edge_close(to);
    tsr_runtime_edge_free(e);
}

/* A message that takes longer than the deadline, while its bytes get through.  The pace makes it take so
 * long; each of its 16 pieces takes a tenth of the deadline. */
static void test_slow(void **state)
{
    enum { TOKENS = 128, SECONDS = 3 };
    const uint64_t              bytes = TOKENS * limits.hidden * sizeof(float), deadline = 2000000;
    char                        over[64];
    struct tsr_runtime_edge     e;
    struct tsr_runtime_edge_end from, to;
    struct sender               s = { .end = &from, .b = work(TOKENS), .e = TSR_ERRBUF(s.e) };
    struct tsr_errbuf           err = TSR_ERRBUF(err);
    struct tsr_runtime_micro_batch *got = calloc(1, sizeof *got);
    pthread_t                       thread;
    (void)state;
    (void)snprintf(over, sizeof over, "local:bandwidth=%.6f", (double)bytes / SECONDS / 1e6);
    open_edge(&e, &from, &to, over, deadline);
    uint64_t t0 = tsr_now_us();
    assert_int_equal(pthread_create(&thread, NULL, send_one, &s), 0);
    tsr_status st = tsr_runtime_edge_recv(&to, got, &limits, &err.err);
    uint64_t   took = tsr_now_us() - t0;
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (st != TSR_OK || s.st != TSR_OK)
        fail_msg("%s; %s", err.text, s.e.text);
    assert_true(took >= SECONDS * UINT64_C(1000000));
    assert_true(took > deadline);
    assert_int_equal(got->head.tokens, TOKENS);
    assert_memory_equal(got->rows, s.b->rows, bytes);
    for (uint32_t i = 0; i < TOKENS; i++)
        assert_true(got->token[i].id == s.b->token[i].id && got->token[i].slot == i % 8 &&
                    got->token[i].ahead == 3 * i);
    assert_int_equal(tsr_comm_link_sent(from.rows), bytes);
    assert_int_equal(tsr_comm_link_sent(from.heads),
                     sizeof(struct tsr_runtime_frame) + tsr_runtime_frame_body(&s.b->head));
    tsr_runtime_micro_batch_free(got);
    tsr_runtime_micro_batch_free(s.b);
    close_edge(&e, &from, &to);
}

/* What is said: which rank, how much of how much, the setting. */
static void says(const char *text, const char *rank, const char *amount)
{
    assert_true(text_has(text, rank));
    assert_true(text_has(text, amount));
    assert_true(text_has(text, "stall"));
}

/* The sender stops in the middle: three pieces of eight. */
static void test_cut_receive(void **state)
{
    enum { TOKENS = 64, PIECES = 3 };
    struct tsr_runtime_edge         e;
    struct tsr_runtime_edge_end     from, to;
    struct tsr_errbuf               err = TSR_ERRBUF(err);
    struct tsr_runtime_micro_batch *b = work(TOKENS), *got = calloc(1, sizeof *got);
    struct tsr_comm_port            port;
    struct tsr_comm_transfer       *t;
    void                           *request[PIECES];
    (void)state;
    open_edge(&e, &from, &to, "local:ring=1024", 500000);
    struct tsr_comm_place place = { "local:ring=1024", 0, 2, e.rows.shared, e.rows.bytes, 1, NULL };
    assert_int_equal(tsr_comm_port_open(&port, registry, &place, &err.err), TSR_OK);
    assert_int_equal(tsr_runtime_micro_batch_pack(b, &err.err), TSR_OK);
    assert_int_equal(tsr_comm_link_send_bytes(from.heads, 1, &b->head, sizeof b->head, &t,
                                              &err.err),
                     TSR_OK);
    assert_int_equal(tsr_comm_link_send_bytes(from.heads, 1, b->body,
                                              tsr_runtime_frame_body(&b->head), &t, &err.err),
                     TSR_OK);
    for (uint64_t i = 0; i < PIECES; i++)
        assert_int_equal(port.iface->send(port.self, NULL, 1,
                                          (unsigned char *)b->rows + i * TSR_COMM_PIECE,
                                          TSR_COMM_PIECE, &request[i], &err.err),
                         TSR_OK);
    uint64_t t0 = tsr_now_us();
    assert_int_equal(tsr_runtime_edge_recv(&to, got, &limits, &err.err), TSR_E_DEVICE);
    assert_true(tsr_now_us() - t0 < LONG_US);
    says(err.text, "rank#3", "1048576 393216");
    tsr_comm_port_close(&port);
    tsr_runtime_micro_batch_free(got);
    tsr_runtime_micro_batch_free(b);
    close_edge(&e, &from, &to);
}

/* The receiver stops in the middle: the sender's ring of 1 MiB is full behind its first pieces. */
static void test_cut_send(void **state)
{
    enum { TOKENS = 128 };
    struct tsr_runtime_edge         e;
    struct tsr_runtime_edge_end     from, to;
    struct tsr_errbuf               err = TSR_ERRBUF(err);
    struct tsr_runtime_micro_batch *b = work(TOKENS);
    (void)state;
    open_edge(&e, &from, &to, "local:ring=1024", 500000);
    uint64_t t0 = tsr_now_us();
    assert_int_equal(tsr_runtime_edge_send(&from, b, &err.err), TSR_E_DEVICE);
    assert_true(tsr_now_us() - t0 < LONG_US);
    says(err.text, "rank#5", "2097152 917504");
    tsr_runtime_micro_batch_free(b);
    close_edge(&e, &from, &to);
}

/* ---- many messages ------------------------------------------------------ */

enum { MESSAGES = 40 };

struct both {
    struct tsr_comm_link *l;
    uint32_t              rank;
    uint64_t              seed;
    bool                  ok;
    struct tsr_errbuf     e;
};

/* From none to five pieces, also such that begin or end at one. */
static uint64_t size_of(uint64_t seed, uint64_t message)
{
    uint32_t u[4];
    tsr_philox(u, message, 0, seed);
    uint64_t whole = u[0] % 6 * (uint64_t)TSR_COMM_PIECE;
    return u[1] % 3 == 0 ? whole : u[1] % 3 == 1 ? whole + 1 : u[2] % (whole + 1);
}

static void give_up(struct both *s, const char *what, uint64_t message)
{
    s->ok = false;
    (void)snprintf(s->e.text, sizeof s->e.text, "%s %llu", what, (unsigned long long)message);
}

static void send_next(struct both *s, uint64_t m, struct tsr_comm_transfer **t)
{
    uint64_t       bytes = size_of(s->seed + s->rank, m);
    unsigned char *b = malloc(bytes + 1);
    for (uint64_t k = 0; k < bytes; k++)
        b[k] = byte_of(m + 1000 * s->rank, k);
    s->ok = tsr_comm_link_send_bytes(s->l, 1 - s->rank, b, bytes, t, &s->e.err) == TSR_OK;
    free(b); /* it was copied */
}

/* The one after it may be under way meanwhile. */
static void receive_two(struct both *s, uint64_t m, uint64_t n)
{
    struct tsr_comm_transfer *t[2];
    unsigned char            *in[2] = { NULL, NULL };
    uint32_t                  other = 1 - s->rank;
    for (uint64_t i = 0; s->ok && i < n; i++) {
        uint64_t bytes = size_of(s->seed + other, m + i);
        in[i] = calloc(1, bytes + 1);
        s->ok = tsr_comm_link_recv_bytes(s->l, other, in[i], bytes, &t[i], &s->e.err) == TSR_OK;
    }
    for (uint64_t i = 0; s->ok && i < n; i++) {
        s->ok = tsr_comm_link_wait_for(s->l, t[i], LONG_US, &s->e.err) == TSR_OK;
        for (uint64_t k = size_of(s->seed + other, m + i); s->ok && k-- > 0;)
            if (in[i][k] != byte_of(m + i + 1000 * other, k))
                give_up(s, "other bytes in message", m + i);
    }
    free(in[0]);
    free(in[1]);
}

/* All is sent at once, what comes is taken by ones and twos: neither side waits for what it sends. */
static void *both_ways(void *arg)
{
    struct both              *s = arg;
    struct tsr_comm_transfer *t[MESSAGES];
    s->ok = true;
    for (uint64_t m = 0; s->ok && m < MESSAGES; m++)
        send_next(s, m, &t[m]);
    for (uint64_t m = 0, n = 1; s->ok && m < MESSAGES; m += n, n = 3 - n)
        receive_two(s, m, n < MESSAGES - m ? n : MESSAGES - m);
    for (uint64_t i = 0; s->ok && i < MESSAGES; i++)
        s->ok = tsr_comm_link_wait_for(s->l, t[i * 7 % MESSAGES], LONG_US, &s->e.err) == TSR_OK;
    return NULL;
}

static void test_many(void **state)
{
    const char           *text = getenv("TSR_TEST_SEED");
    uint64_t              seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL), sent = 0;
    struct tsr_comm_world w;
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct both           side[2];
    pthread_t             thread[2];
    (void)state;
    print_message("TSR_TEST_SEED=%llu\n", (unsigned long long)seed);
    assert_int_equal(tsr_comm_world_create(&w, registry, "local:ring=64", 2, &e.err), TSR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        struct tsr_comm_link_options o = { .place = { "local:ring=64", r, 2, w.shared, w.bytes, 1,
                                                      NULL } };
        side[r] = (struct both){ .rank = r, .seed = 2 * seed, .e = TSR_ERRBUF(side[r].e) };
        assert_int_equal(tsr_comm_link_create(&side[r].l, registry, &o, &e.err), TSR_OK);
    }
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, both_ways, &side[r]), 0);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    for (uint32_t r = 0; r < 2; r++) {
        if (!side[r].ok)
            fail_msg("rank %u: %s", r, side[r].e.text);
        sent = 0;
        for (uint64_t m = 0; m < MESSAGES; m++)
            sent += size_of(2 * seed + r, m);
        assert_int_equal(tsr_comm_link_sent(side[r].l), sent);
        tsr_comm_link_destroy(side[r].l);
    }
    tsr_comm_world_close(&w);
}

/* ---- a transport with room for one ------------------------------------- */

static const struct tsr_transport_v1 *real;
static unsigned                       under_way, most;

static tsr_status small_send(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    *request = NULL;
    tsr_status st =
        under_way < most ? real->send(self, stream, to, buf, bytes, request, err) : TSR_OK;
    under_way += *request != NULL;
    return st;
}

static tsr_status small_test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    tsr_status st = real->test(self, request, done, err);
    under_way -= st != TSR_OK || *done;
    return st;
}

static tsr_status small_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    under_way--;
    return real->wait(self, request, deadline_us, err);
}

struct taker {
    struct tsr_comm_flows *s;
    struct tsr_comm_flow  *in;
    uint64_t               n;
    bool                   ok;
    struct tsr_errbuf      e;
};

static void *take_all(void *arg)
{
    struct taker *x = arg;
    x->ok = true;
    for (uint64_t i = 0; x->ok && i < x->n; i++)
        x->ok = tsr_comm_flow_wait(x->s, &x->in[i], LONG_US, &x->e.err) == TSR_OK;
    return NULL;
}

/* Three messages at a time; with room for none the wait ends. */
static void test_room(void **state)
{
    enum { N = 3, BYTES = 3 * TSR_COMM_PIECE + 5 };
    struct tsr_comm_world w;
    struct tsr_comm_port  port[2];
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_flow  out[N], in[N];
    static unsigned char  from[N][BYTES], to[N][BYTES];
    pthread_t             thread;
    (void)state;
    assert_int_equal(tsr_comm_world_create(&w, registry, "local:ring=1024", 2, &e.err), TSR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        struct tsr_comm_place place = { "local:ring=1024", i, 2, w.shared, w.bytes, 1, NULL };
        assert_int_equal(tsr_comm_port_open(&port[i], registry, &place, &e.err), TSR_OK);
    }
    real = port[0].iface;
    struct tsr_transport_v1 one = *real;
    one.send = small_send;
    one.test = small_test;
    one.wait = small_wait;
    struct tsr_comm_port  small = { .iface = &one, .self = port[0].self };
    struct tsr_comm_flows s = { .port = &small, .rank = 0 }, r = { .port = &port[1], .rank = 1 };
    struct taker          taker = { .s = &r, .in = in, .n = N, .e = TSR_ERRBUF(taker.e) };
    most = 1;
    for (uint64_t i = 0; i < N; i++) {
        for (uint64_t k = 0; k < BYTES; k++)
            from[i][k] = byte_of(i, k);
        out[i] = (struct tsr_comm_flow){ .out = true, .peer = 1, .buf = from[i], .bytes = BYTES };
        in[i] = (struct tsr_comm_flow){ .buf = to[i], .bytes = BYTES };
        assert_int_equal(tsr_comm_flow_start(&s, &out[i], &e.err), TSR_OK);
        assert_int_equal(tsr_comm_flow_start(&r, &in[i], &e.err), TSR_OK);
        assert_true(under_way <= most);
    }
    assert_int_equal(pthread_create(&thread, NULL, take_all, &taker), 0);
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(tsr_comm_flow_wait(&s, &out[i], LONG_US, &e.err), TSR_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (!taker.ok)
        fail_msg("%s", taker.e.text);
    for (uint64_t i = 0; i < N; i++)
        assert_memory_equal(to[i], from[i], BYTES);
    assert_null(r.under_way);
    assert_null(s.under_way);
    most = 0;
    out[0] = (struct tsr_comm_flow){ .out = true, .peer = 1, .buf = from[0], .bytes = BYTES };
    assert_int_equal(tsr_comm_flow_start(&s, &out[0], &e.err), TSR_OK);
    assert_int_equal(tsr_comm_flow_wait(&s, &out[0], 100000, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#0 rank#1"));
    assert_true(s.late_us >= 100000);
    assert_null(s.under_way);
    assert_int_equal(tsr_comm_flow_wait(&s, &out[0], 100000, &e.err), TSR_E_DEVICE);
    assert_true(error_is(&e.err, "", "rank#0 rank#1"));
    for (uint32_t i = 0; i < 2; i++)
        tsr_comm_port_close(&port[i]);
    tsr_comm_world_close(&w);
}

static int setup(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_TRANSPORT, "local", &found);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow),     cmocka_unit_test(test_cut_receive),
        cmocka_unit_test(test_cut_send), cmocka_unit_test(test_many),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
