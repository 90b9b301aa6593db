/* The queue of launches and its graphs, over the emulated device with every call counted: a list that
 * comes again is recorded once and replayed, kept apart from others by its shape and its arguments; errors come
 * out where somebody waits; and linear algebra of another thread waits its turn. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "backend.h"
#include "host.h"

/* ---- a device that counts ---------------------------------------------------------------- */

static struct {
    int        launches, makes, runs, frees, syncs;
    atomic_int inside, met; /* calls in the device; those that met another one there */
    tsr_status make_fails, launch_fails;
} n;
static struct tsr_cuda_api api;

static void come(void)
{
    if (atomic_fetch_add(&n.inside, 1) > 0)
        atomic_fetch_add(&n.met, 1);
    (void)usleep(20);
}
static void go(void)
{
    atomic_fetch_sub(&n.inside, 1);
}

static tsr_status launch(void *d, void *s, const struct tsr_cuda_launch *l, struct tsr_err *err)
{
    n.launches++;
    if (n.launch_fails)
        return tsr_fail(err, n.launch_fails, "planted: a launch");
    come();
    tsr_status st = tsr_cuda_simt.launch(d, s, l, err);
    go();
    return st;
}
static tsr_status blas(void *d, const struct tsr_cuda_blas *b, struct tsr_err *err)
{
    come();
    tsr_status st = tsr_cuda_simt.blas(d, b, err);
    go();
    return st;
}
static tsr_status sync_all(void *d, void *s, struct tsr_err *err)
{
    n.syncs++;
    return tsr_cuda_simt.sync(d, s, err);
}
static tsr_status graph_make(void *d, const struct tsr_cuda_launch *l, uint64_t count, void **graph,
                             struct tsr_err *err)
{
    n.makes++;
    if (n.make_fails)
        return tsr_fail(err, n.make_fails, "planted: a graph");
    return tsr_cuda_simt.graph_make(d, l, count, graph, err);
}
static tsr_status graph_run(void *d, void *graph, struct tsr_err *err)
{
    n.runs++;
    return tsr_cuda_simt.graph_run(d, graph, err);
}
static void graph_free(void *d, void *graph)
{
    n.frees++;
    tsr_cuda_simt.graph_free(d, graph);
}

/* ---- a pass: a chain of SCALEs over rows of 8 columns ------------------------------------ */

#define COLS 8u
#define ROWS 16u

struct rig {
    void             *self;
    struct tsr_tensor x, y, other;
    struct tsr_err    err;
    char              text[400];
};

static struct tsr_tensor tensor(struct rig *r, uint64_t rows)
{
    struct tsr_tensor t = { .struct_size = sizeof t,
                            .dtype = TSR_F32,
                            .rows = rows,
                            .cols = COLS,
                            .row_stride = COLS * UINT64_C(4) };
    assert_int_equal(tsr_cuda_buffer_alloc(r->self, rows * COLS * 4, &t.buffer, &r->err), TSR_OK);
    return t;
}

static void open_with(struct rig *r, enum tsr_cuda_launching launching)
{
    struct tsr_cuda_options o = { .launching = launching, .numerics = TSR_CUDA_FAST };
    memset(&n, 0, sizeof n);
    memset(logged, 0, sizeof logged);
    stop = 0;
    api = tsr_cuda_simt;
    api.launch = launch;
    api.sync = sync_all;
    api.graph_make = graph_make;
    api.graph_run = graph_run;
    api.graph_free = graph_free;
    api.blas = blas;
    r->err =
        (struct tsr_err){ .struct_size = sizeof r->err, .cap = sizeof r->text, .text = r->text };
    assert_int_equal(tsr_cuda_create(&host, &api, &o, &r->self, &r->err), TSR_OK);
    r->x = tensor(r, ROWS);
    r->y = tensor(r, ROWS);
    r->other = tensor(r, ROWS);
}

static void close_rig(struct rig *r)
{
    tsr_cuda_buffer_free(r->self, r->x.buffer);
    tsr_cuda_buffer_free(r->self, r->y.buffer);
    tsr_cuda_buffer_free(r->self, r->other.buffer);
    tsr_cuda_destroy(r->self);
    assert_int_equal(held, 0);
}

static tsr_status scale(struct rig *r, const struct tsr_tensor *from, const struct tsr_tensor *to,
                        float by)
{
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_SCALE, .out = to, .in = { from }, .scale = by
    };
    return tsr_cuda_run(r->self, NULL, &op, &r->err);
}

static void put(struct rig *r, float v)
{
    float data[ROWS * COLS];
    for (unsigned i = 0; i < ROWS * COLS; i++)
        data[i] = v;
    assert_int_equal(tsr_cuda_upload(r->self, r->x.buffer, 0, data, sizeof data, &r->err), TSR_OK);
}

/* The first `rows` rows of y from those of x, times 2^(steps - 1) by steps launches. */
static tsr_status pass(struct rig *r, const struct tsr_tensor *y, uint64_t rows, int steps)
{
    struct tsr_tensor a = r->x, b = *y;
    a.rows = b.rows = rows;
    tsr_status st = scale(r, &a, &b, 1.0f);
    for (int i = 1; i < steps && st == TSR_OK; i++)
        st = scale(r, &b, &b, 2.0f);
    return st;
}

static float first_of(struct rig *r, const struct tsr_tensor *t)
{
    float v = -1.0f;
    assert_int_equal(tsr_cuda_download(r->self, t->buffer, 0, &v, 4, &r->err), TSR_OK);
    return v;
}

/* A pass whose result is right. */
static void passes(struct rig *r, const struct tsr_tensor *y, uint64_t rows, int steps, float x)
{
    put(r, x);
    assert_int_equal(pass(r, y, rows, steps), TSR_OK);
    assert_int_equal(tsr_cuda_sync(r->self, NULL, &r->err), TSR_OK);
    assert_true(first_of(r, y) == x * (float)(UINT64_C(1) << (steps - 1)));
}

/* ---- tests --------------------------------------------------------------------------------- */

static void recorded_once_and_replayed(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    passes(&r, &r.y, ROWS, 10, 1.0f);
    assert_int_equal(n.launches, 10); /* may never come again */
    assert_int_equal(n.makes, 0);
    for (int i = 0; i < 5; i++)
        passes(&r, &r.y, ROWS, 10, 2.0f + (float)i); /* other numbers, the same launches */
    assert_int_equal(n.launches, 10);
    assert_int_equal(n.makes, 1);
    assert_int_equal(n.runs, 5);
    close_rig(&r);
    assert_int_equal(n.frees, 1);
}

static void short_lists_are_launched(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    for (int i = 0; i < 4; i++)
        passes(&r, &r.y, ROWS, 7, 3.0f);
    assert_int_equal(n.launches, 4 * 7);
    assert_int_equal(n.makes, 0);
    close_rig(&r);
}

/* A device with nothing to do gets 64 launches while the host queues the rest: two graphs in each pass. */
static void long_lists_begin_early(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    put(&r, 1.0f);
    assert_int_equal(pass(&r, &r.y, ROWS, 100), TSR_OK);
    assert_int_equal(n.launches, 64); /* before anyone waits */
    assert_true(first_of(&r, &r.y) == 0x1p99f);
    assert_int_equal(n.launches, 100);
    for (int i = 0; i < 3; i++) {
        put(&r, 2.0f + (float)i);
        assert_int_equal(pass(&r, &r.y, ROWS, 100), TSR_OK);
        assert_true(first_of(&r, &r.y) == (2.0f + (float)i) * 0x1p99f);
    }
    assert_int_equal(n.launches, 100);
    assert_int_equal(n.makes, 2);
    assert_int_equal(n.runs, 6);
    close_rig(&r);
}

/* Layers that ranks share are lists of the same kernels over other weights, in turn for each token: a graph each. */
static void lists_in_turn(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    for (int token = 0; token < 6; token++) {
        passes(&r, &r.y, ROWS, 10, 1.0f + (float)token);
        passes(&r, &r.other, ROWS, 10, 2.0f + (float)token);
    }
    assert_true(first_of(&r, &r.y) == 6.0f * 512.0f);
    assert_int_equal(n.makes, 2);
    assert_int_equal(n.runs, 2 * 5);
    assert_int_equal(n.launches, 2 * 10);
    close_rig(&r);
    assert_int_equal(n.frees, 2);
}

static void shapes_are_kept_apart(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    for (int i = 0; i < 3; i++) {
        passes(&r, &r.y, ROWS, 10, 1.0f);
        passes(&r, &r.y, ROWS, 12, 1.0f);
        passes(&r, &r.y, ROWS - 1, 10, 1.0f);
    }
    assert_int_equal(n.makes, 3);
    assert_int_equal(n.runs, 6);
    close_rig(&r);
    assert_int_equal(n.frees, 3);
}

/* A list with a number of its own: y = x * (1 + v / 1024) * 2^9. */
static void varied(struct rig *r, int v)
{
    float by = 1.0f + (float)v / 1024.0f;
    put(r, 1.0f);
    assert_int_equal(scale(r, &r->x, &r->y, by), TSR_OK);
    for (int i = 1; i < 10; i++)
        assert_int_equal(scale(r, &r->y, &r->y, 2.0f), TSR_OK);
    assert_true(first_of(r, &r->y) == by * 512.0f);
}

static void lists_that_never_come_again(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    for (int i = 0; i < 40; i++)
        varied(&r, i);
    assert_int_equal(n.makes, 0);
    assert_int_equal(n.launches, 400);
    close_rig(&r);
}

/* More than are kept: the oldest go, and results stay right. */
static void the_oldest_go(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    for (int i = 0; i < (int)TSR_CUDA_KEPT + 2; i++)
        for (int k = 0; k < 2; k++)
            varied(&r, i);
    assert_int_equal(n.makes, (int)TSR_CUDA_KEPT + 2);
    assert_int_equal(n.frees, 2);
    int runs = n.runs;
    varied(&r, (int)TSR_CUDA_KEPT + 1);
    varied(&r, 2);
    assert_int_equal(n.runs, runs + 2);
    close_rig(&r);
    assert_int_equal(n.frees, n.makes);
}

static void many_launches(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    put(&r, 3.0f);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(scale(&r, &r.x, &r.y, 1.0f), TSR_OK);
        for (int i = 0; i < 2500; i++) /* more than a list holds */
            assert_int_equal(scale(&r, &r.y, &r.y, i % 2 ? 2.0f : 0.5f), TSR_OK);
        assert_true(first_of(&r, &r.y) == 3.0f);
    }
    close_rig(&r);
}

static void copies_keep_their_place(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    put(&r, 1.0f);
    assert_int_equal(pass(&r, &r.y, ROWS, 3), TSR_OK);
    put(&r, 7.0f); /* behind the pass */
    assert_true(first_of(&r, &r.y) == 4.0f);
    /* a buffer goes while a list that uses it waits: the list goes first */
    struct tsr_tensor t = tensor(&r, ROWS);
    assert_int_equal(scale(&r, &r.x, &t, 3.0f), TSR_OK);
    assert_int_equal(scale(&r, &t, &r.y, 1.0f), TSR_OK);
    int before = n.launches;
    tsr_cuda_buffer_free(r.self, t.buffer);
    assert_int_equal(n.launches, before + 2);
    assert_true(first_of(&r, &r.y) == 21.0f);
    close_rig(&r);
}

static void errors_come_out(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    n.launch_fails = TSR_E_DEVICE;
    assert_int_equal(pass(&r, &r.y, ROWS, 10), TSR_OK);
    assert_int_equal(tsr_cuda_sync(r.self, NULL, &r.err), TSR_E_DEVICE);
    assert_true(error_is(&r.err, "", NULL));
    assert_int_equal(n.launches, 1);
    n.launch_fails = TSR_OK;
    assert_int_equal(tsr_cuda_sync(r.self, NULL, &r.err), TSR_OK); /* said once */
    close_rig(&r);
}

/* Whatever the reason: this list and all later ones are launched. */
static void a_capture_that_fails(void **state)
{
    static const tsr_status why[] = { TSR_E_DEVICE, TSR_E_NOMEM };
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig r;
        open_with(&r, TSR_CUDA_GRAPHS);
        n.make_fails = why[k];
        for (int i = 0; i < 4; i++)
            passes(&r, &r.y, ROWS, 10, 2.0f + (float)i);
        assert_int_equal(n.makes, 1);
        assert_int_equal(n.runs, 0);
        assert_int_equal(n.launches, 40);
        assert_non_null(strstr(logged, "planted: a graph"));
        assert_non_null(strstr(logged, "one by one"));
        close_rig(&r);
    }
}

static void a_driver_without_graphs(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    n.make_fails = TSR_E_UNSUPPORTED;
    for (int i = 0; i < 4; i++)
        passes(&r, &r.y, ROWS, 10, 2.0f);
    assert_int_equal(n.makes, 1);
    assert_int_equal(n.runs, 0);
    assert_int_equal(n.launches, 40);
    assert_non_null(strstr(logged, "planted: a graph"));
    close_rig(&r);
}

static void other_ways_to_launch(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_ONE_BY_ONE);
    for (int i = 0; i < 3; i++)
        passes(&r, &r.y, ROWS, 10, 2.0f);
    assert_int_equal(n.makes, 0);
    assert_int_equal(n.syncs, 3);
    n.launch_fails = TSR_E_DEVICE; /* at once */
    assert_int_equal(pass(&r, &r.y, ROWS, 10), TSR_E_DEVICE);
    n.launch_fails = TSR_OK;
    close_rig(&r);
    open_with(&r, TSR_CUDA_AND_WAIT);
    passes(&r, &r.y, ROWS, 10, 2.0f);
    assert_int_equal(n.syncs, 11);
    close_rig(&r);
}

static void stopped_between_launches(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, TSR_CUDA_GRAPHS);
    assert_int_equal(pass(&r, &r.y, ROWS, 10), TSR_OK);
    stop = 1;
    assert_int_equal(tsr_cuda_sync(r.self, NULL, &r.err), TSR_E_CANCELLED);
    assert_int_equal(n.launches, 1);
    assert_int_equal(pass(&r, &r.y, ROWS, 10), TSR_E_CANCELLED);
    stop = 0;
    passes(&r, &r.y, ROWS, 10, 2.0f);
    close_rig(&r);
}

/* ---- indices ------------------------------------------------------------------------------ */

/* Positions of a long chunk take more than the copy on the host has room for: they are fetched. */
static void indices_beyond_the_copy(void **state)
{
    enum { N = 3 };
    struct rig        r;
    const uint64_t    bytes = 3 * TSR_CUDA_MIRROR, at = 2 * TSR_CUDA_MIRROR + 64;
    struct tsr_tensor rows = { .struct_size = sizeof rows,
                               .dtype = TSR_U32,
                               .rows = 1,
                               .cols = N,
                               .row_stride = N * 4,
                               .offset = at };
    uint32_t         *all = calloc(1, bytes), *ids = all + at / 4;
    float             x[ROWS * COLS], y[N * COLS];
    (void)state;
    assert_non_null(all);
    open_with(&r, TSR_CUDA_GRAPHS);
    for (unsigned i = 0; i < ROWS * COLS; i++)
        x[i] = (float)i;
    assert_int_equal(tsr_cuda_upload(r.self, r.x.buffer, 0, x, sizeof x, &r.err), TSR_OK);
    assert_int_equal(tsr_cuda_buffer_alloc(r.self, bytes, &rows.buffer, &r.err), TSR_OK);
    struct tsr_tensor to = r.y;
    to.rows = N;
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_GATHER, .out = &to, .in = { &r.x, &rows }
    };
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < N; i++)
            ids[i] = (5 * i + round) % ROWS;
        assert_int_equal(tsr_cuda_upload(r.self, rows.buffer, 0, all, bytes, &r.err), TSR_OK);
        assert_int_equal(tsr_cuda_run(r.self, NULL, &op, &r.err), TSR_OK);
        assert_int_equal(tsr_cuda_download(r.self, to.buffer, 0, y, sizeof y, &r.err), TSR_OK);
        for (uint32_t i = 0; i < N; i++)
            assert_memory_equal(y + i * COLS, x + (size_t)ids[i] * COLS, COLS * sizeof *x);
    }
    ids[1] = ROWS;
    assert_int_equal(tsr_cuda_upload(r.self, rows.buffer, at, ids, N * 4, &r.err), TSR_OK);
    assert_int_equal(tsr_cuda_run(r.self, NULL, &op, &r.err), TSR_E_INVAL);
    assert_true(error_is(&r.err, "", "GATHER 16"));
    tsr_cuda_buffer_free(r.self, rows.buffer);
    close_rig(&r);
    free(all);
}

/* ---- two threads ---------------------------------------------------------------------------- */

#define ROUNDS 40

static void *multiply(void *arg)
{
    struct rig                 *r = arg;
    const struct tsr_linalg_v1 *t = tsr_cuda_extension(r->self, TSR_LINALG);
    float                       x[16 * 8], h[8 * 8];
    char                        text[200];
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    for (int i = 0; i < 16 * 8; i++)
        x[i] = 1.0f;
    for (int i = 0; i < ROUNDS; i++) {
        memset(h, 0, sizeof h);
        if (t->syrk(t->ctx, 8, 16, 1.0f, x, 8, h, 8, &err) != TSR_OK || h[0] != 16.0f ||
            h[63] != 16.0f)
            return arg;
    }
    return NULL;
}

/* A job's linear algebra and the layers of its model take the same queue, scratch and staging memory. */
static void one_call_at_a_time(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig r;
        pthread_t  other;
        void      *failed = NULL;
        open_with(&r, k ? TSR_CUDA_ONE_BY_ONE : TSR_CUDA_GRAPHS);
        assert_non_null(tsr_cuda_extension(r.self, TSR_LINALG));
        assert_int_equal(pthread_create(&other, NULL, multiply, &r), 0);
        for (int i = 0; i < ROUNDS; i++)
            passes(&r, &r.y, ROWS, 10, 1.0f + (float)(i % 7));
        assert_int_equal(pthread_join(other, &failed), 0);
        assert_null(failed);
        assert_int_equal(atomic_load(&n.met), 0);
        close_rig(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_once_and_replayed),
        cmocka_unit_test(short_lists_are_launched),
        cmocka_unit_test(long_lists_begin_early),
        cmocka_unit_test(lists_in_turn),
        cmocka_unit_test(shapes_are_kept_apart),
        cmocka_unit_test(lists_that_never_come_again),
        cmocka_unit_test(the_oldest_go),
        cmocka_unit_test(many_launches),
        cmocka_unit_test(copies_keep_their_place),
        cmocka_unit_test(errors_come_out),
        cmocka_unit_test(a_capture_that_fails),
        cmocka_unit_test(a_driver_without_graphs),
        cmocka_unit_test(other_ways_to_launch),
        cmocka_unit_test(stopped_between_launches),
        cmocka_unit_test(indices_beyond_the_copy),
        cmocka_unit_test(one_call_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
