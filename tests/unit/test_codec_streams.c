/* Codecs with a state between messages: error feedback against its definition, what the host keeps and when it
 * begins again, and where a codec that requires an order is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "comm/group.h"
#include "comm/link.h"
#include "eval/link.h"
#include "plugin_open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3u
#define ROWS  5u
#define COLS  200u
#define SITES 4u

static struct tsr_registry *registry;
static uint64_t             seed = 1;

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("%s", e->text);
}

static float number(uint64_t stream, uint64_t i)
{
    return (float)tsr_normal(seed, stream, i);
}

/* ---- the codec ------------------------------------------------------------------ */

struct codec {
    struct tsr_plugin_spec     spec;
    const struct tsr_codec_v1 *t;
    void                      *self;
};

static struct codec open_codec(const char *text)
{
    struct codec      c = { 0 };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    must(tsr_plugin_spec_open(&c.spec, registry, TSR_KIND_CODEC, text, &e.err), &e);
    c.t = c.spec.found.iface;
    must(c.t->create(c.spec.found.host, c.spec.options, &c.self, &e.err), &e);
    return c;
}

static void close_codec(struct codec *c)
{
    c->t->destroy(c->self);
    tsr_plugin_spec_close(&c->spec);
}

/* x [rows, COLS] there and back; wire [rows * COLS] is more than it takes. */
static uint64_t send(const struct codec *c, const float *x, uint64_t rows, void *state, void *wire,
                     float *y)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = {
        .struct_size = sizeof j, .rows = rows, .cols = COLS, .src = x, .wire = wire, .state = state
    };
    must(c->t->wire_bytes(c->self, rows, COLS, &j.wire_bytes, &e.err), &e);
    assert_true(j.wire_bytes <= rows * COLS);
    must(c->t->encode(c->self, &j, &e.err), &e);
    j.src = NULL;
    j.state = NULL;
    j.dst = y;
    must(c->t->decode(c->self, &j, &e.err), &e);
    return j.wire_bytes;
}

/* A message is that of the codec without feedback for the numbers plus the error of the last one; the error is what
 * these and the decoded ones differ by, and 0 where it is not finite. */
static void feedback_is_what_its_page_says(void **unused)
{
    (void)unused;
    struct codec plain = open_codec("mx:block=16");
    for (int tokens = 0; tokens < 2; tokens++) {
        struct codec fed =
            open_codec(tokens ? "mx:block=16,feedback=tokens" : "mx:block=16,feedback=layers");
        _Alignas(64) float state[ROWS * COLS] = { 0 };
        float              error[ROWS][COLS] = { { 0 } }, x[ROWS * COLS], y[ROWS * COLS];
        unsigned char      wire[ROWS * COLS], want[COLS];
        for (uint64_t m = 0; m < 8; m++) {
            for (uint64_t i = 0; i < ROWS * COLS; i++)
                x[i] = m == 3 && i % 97 == 5   ? NAN
                       : m == 5 && i % 89 == 7 ? -INFINITY
                                               : number(m, i);
            uint64_t n = send(&fed, x, ROWS, state, wire, y);
            for (uint64_t r = 0; r < ROWS; r++) {
                float *e = error[tokens ? 0 : r], v[COLS], d[COLS];
                for (uint64_t i = 0; i < COLS; i++)
                    v[i] = x[r * COLS + i] + e[i];
                uint64_t each = send(&plain, v, 1, NULL, want, d);
                assert_int_equal(each * ROWS, n);
                assert_memory_equal(wire + r * each, want, each);
                for (uint64_t i = 0; i < COLS; i++)
                    e[i] = isfinite(v[i] - d[i]) ? v[i] - d[i] : 0;
            }
        }
        close_codec(&fed);
    }
    close_codec(&plain);
}

/* Errors of n independent messages add up like sqrt(n); with feedback the sum is wrong by the last one alone. */
static void errors_do_not_add_up(void **unused)
{
    (void)unused;
    double rms[2] = { 0, 0 };
    for (int fed = 0; fed < 2; fed++) {
        struct codec       c = open_codec(fed ? "mx:feedback=layers" : "mx");
        _Alignas(64) float state[COLS] = { 0 };
        double             off[COLS] = { 0 };
        float              x[COLS], y[COLS];
        unsigned char      wire[COLS];
        for (uint64_t m = 0; m < 100; m++) {
            for (uint64_t i = 0; i < COLS; i++)
                x[i] = number(m, i);
            (void)send(&c, x, 1, state, wire, y);
            for (uint64_t i = 0; i < COLS; i++)
                off[i] += (double)y[i] - (double)x[i];
        }
        for (uint64_t i = 0; i < COLS; i++)
            rms[fed] += off[i] * off[i];
        close_codec(&c);
    }
    if (!(rms[1] * 9 < rms[0])) /* 100 is expected of squares; 9 leaves room for the draw */
        fail_msg("squared error of a sum of 100 messages: %g, and %g with feedback", rms[0],
                 rms[1]);
}

/* ---- sums ----------------------------------------------------------------------- */

static void open_coder(struct tsr_comm_coder *c, const char *codec, enum tsr_comm_algorithm a,
                       uint64_t piece)
{
    struct tsr_errbuf   e = TSR_ERRBUF(e);
    struct tsr_comm_way way = { .codec = codec, .algorithm = a, .piece = piece };
    must(tsr_comm_coder_open(c, registry, &way, RANKS, &e.err), &e);
}

/* The sum of rows [first, first + rows) of the message of a site. */
static void sum(const struct tsr_comm_coder *c, uint32_t site, uint64_t first, uint64_t rows,
                float *out)
{
    static float      x[RANKS][ROWS * COLS];
    const float      *partial[RANKS];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint64_t i = 0; i < rows * COLS; i++)
            x[r][i] = number(100 * site + r, first * COLS + i);
        partial[r] = x[r];
    }
    must(tsr_comm_sum_simulated(c, site, partial, rows, COLS, out, &e.err), &e);
}

/* A pass from the first site on has no memory of the one before it, whole or cut short, of equal rows or not. */
static void passes_begin_again(void **unused)
{
    static float want[SITES][ROWS * COLS], got[ROWS * COLS], rest[ROWS * COLS];
    (void)unused;
    for (int a = 0; a < 2; a++) {
        struct tsr_comm_coder c, other;
        open_coder(&c, "mx:feedback=layers", (enum tsr_comm_algorithm)a, 0);
        for (uint32_t s = 0; s < SITES; s++)
            sum(&c, s, 0, ROWS, want[s]);
        for (uint32_t until = 1; until <= SITES; until++) {
            for (uint32_t s = 0; s < until; s++) {
                sum(&c, s, 0, ROWS, got);
                assert_memory_equal(got, want[s], sizeof got);
            }
            for (uint32_t s = 0; until % 2 && s < until; s++)
                sum(&c, s, 1, ROWS - 2, rest);
        }
        for (uint32_t s = 0; s < SITES; s++) {
            sum(&c, s, 0, ROWS, got);
            assert_memory_equal(got, want[s], sizeof got);
        }
        open_coder(&other, "mx:feedback=layers", (enum tsr_comm_algorithm)a, 0);
        sum(&other, 2, 0, ROWS, got); /* alone, it is another one: feedback was at work */
        assert_memory_not_equal(got, want[2], sizeof got);
        tsr_comm_coder_close(&c);
        tsr_comm_coder_close(&other);
    }
}

/* What a batch has: a row's sum does not depend on the rows next to it, nor on pieces. */
static void rows_keep_apart(void **unused)
{
    static float want[SITES][ROWS * COLS], got[COLS];
    (void)unused;
    for (int a = 0; a < 2; a++)
        for (uint64_t piece = 0; piece < 3; piece++) {
            struct tsr_comm_coder c, one;
            open_coder(&c, "mx:feedback=layers", (enum tsr_comm_algorithm)a,
                       piece * COLS * sizeof(float));
            open_coder(&one, "mx:feedback=layers", (enum tsr_comm_algorithm)a, 0);
            for (uint32_t s = 0; s < SITES; s++)
                sum(&c, s, 0, ROWS, want[s]);
            for (uint64_t r = 0; r < ROWS; r++)
                for (uint32_t s = 0; s < SITES; s++) {
                    sum(&one, s, r, 1, got);
                    assert_memory_equal(got, want[s] + r * COLS, sizeof got);
                }
            tsr_comm_coder_close(&c);
            tsr_comm_coder_close(&one);
        }
}

/* Prompts in chunks of any size are one stream of tokens. */
static void tokens_are_one_stream(void **unused)
{
    static float want[ROWS * COLS], got[COLS], first[COLS];
    (void)unused;
    for (int a = 0; a < 2; a++) {
        struct tsr_comm_coder c, one, new;
        open_coder(&c, "mx:feedback=tokens", (enum tsr_comm_algorithm)a, 2 * COLS * sizeof(float));
        open_coder(&one, "mx:feedback=tokens", (enum tsr_comm_algorithm)a, 0);
        sum(&c, 1, 0, ROWS, want);
        for (uint64_t r = 0; r < ROWS; r++) {
            sum(&one, 1, r, 1, got);
            assert_memory_equal(got, want + r * COLS, sizeof got);
            open_coder(&new, "mx:feedback=tokens", (enum tsr_comm_algorithm)a, 0);
            sum(&new, 1, r, 1, first);
            tsr_comm_coder_close(&new);
            assert_int_equal(memcmp(first, got, sizeof got) == 0, r == 0);
        }
        tsr_comm_coder_close(&c);
        tsr_comm_coder_close(&one);
    }
}

static void memory_is_exact(void **unused)
{
    static float          out[ROWS * COLS];
    struct tsr_comm_coder c;
    (void)unused;
    open_coder(&c, "mx:feedback=layers", TSR_COMM_ALL_GATHER, 0);
    for (uint32_t s = 0; s < SITES; s++)
        sum(&c, s, 0, ROWS, out);
    assert_int_equal(tsr_comm_streams_bytes(c.streams), RANKS * ROWS * COLS * sizeof(float));
    sum(&c, 0, 0, 2, out);
    assert_int_equal(tsr_comm_streams_bytes(c.streams), RANKS * 2 * COLS * sizeof(float));
    tsr_comm_coder_close(&c);
    open_coder(&c, "mx:feedback=tokens", TSR_COMM_ALL_GATHER, 0);
    for (uint32_t s = 0; s < 100; s++)
        sum(&c, s, 0, 1 + s % ROWS, out);
    assert_int_equal(tsr_comm_streams_bytes(c.streams), 100 * RANKS * COLS * sizeof(float));
    tsr_comm_coder_close(&c);
    /* two-step: each slice for its owner, and the owner's sum for all; every number once a rank */
    open_coder(&c, "mx:feedback=layers", TSR_COMM_TWO_STEP, 0);
    sum(&c, 0, 0, ROWS, out);
    assert_int_equal(tsr_comm_streams_bytes(c.streams), RANKS * ROWS * COLS * sizeof(float));
    tsr_comm_coder_close(&c);
    open_coder(&c, "mx", TSR_COMM_ALL_GATHER, 0);
    assert_null(c.streams);
    tsr_comm_coder_close(&c);
}

/* ---- what is refused ------------------------------------------------------------ */

static void orders_are_refused(void **unused)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_comm_coder c;
    struct tsr_eval_link  l;
    struct tsr_comm_link *link;
    (void)unused;
    struct tsr_comm_way way = { .codec = "mx:feedback=tokens", .rows_alone = true };
    assert_int_equal(tsr_comm_coder_open(&c, registry, &way, RANKS, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "codec 'mx:feedback=tokens'", "required"));
    way.codec = "mx:feedback=layers";
    must(tsr_comm_coder_open(&c, registry, &way, RANKS, &e.err), &e);
    assert_false(tsr_comm_coder_ordered(&c));
    tsr_comm_coder_close(&c);
    for (int i = 0; i < 2; i++) {
        const char *codec = i ? "mx:feedback=tokens" : "mx:feedback=layers";
        const char *object = i ? "codec 'mx:feedback=tokens'" : "codec 'mx:feedback=layers'";
        struct tsr_comm_link_options o = { .codec = { "mx", codec } };
        assert_int_equal(tsr_comm_link_create(&link, registry, &o, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, object, NULL));
        assert_int_equal(tsr_eval_link_open(&l, registry, codec, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, object, NULL));
    }
    must(tsr_eval_link_open(&l, registry, "mx", &e.err), &e);
    tsr_eval_link_close(&l);
}

/* A device has no state: the codec describes no wire. */
static void devices_are_refused(void **unused)
{
    (void)unused;
    for (int fed = 0; fed < 2; fed++) {
        struct tsr_errbuf               e = TSR_ERRBUF(e);
        struct codec                    c = open_codec(fed ? "mx:feedback=layers" : "mx");
        struct tsr_codec_wire           w = { .struct_size = sizeof w };
        const struct tsr_codec_wire_v1 *t = c.t->extension(c.self, TSR_CODEC_WIRE);
        assert_non_null(t);
        assert_int_equal(t->wire(c.self, 0, 0, COLS, &w, &e.err), fed ? TSR_E_UNSUPPORTED : TSR_OK);
        close_codec(&c);
    }
}

static int setup(void **unused)
{
    struct tsr_plugin_found found;
    const char             *s = getenv("TSR_TEST_SEED");
    (void)unused;
    if (s)
        seed = strtoull(s, NULL, 10);
    registry = open_plugin(TSR_KIND_CODEC, "mx", &found);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feedback_is_what_its_page_says),
        cmocka_unit_test(errors_do_not_add_up),
        cmocka_unit_test(passes_begin_again),
        cmocka_unit_test(rows_keep_apart),
        cmocka_unit_test(tokens_are_one_stream),
        cmocka_unit_test(memory_is_exact),
        cmocka_unit_test(orders_are_refused),
        cmocka_unit_test(devices_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
