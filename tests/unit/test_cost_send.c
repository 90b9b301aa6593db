/* The time of messages between stages whose codec takes time: against threads and a buffer, played message by message. */
#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "cost_fixture.h"

#include <math.h>

#define MESSAGES 200u
#define HELD     65536.0 /* as cost/latency_ends.c has it */

/* When the last of so many messages that are ready at 0 is decoded.  A sender encodes one message for each of `copies`
 * receivers and is free for the next when a transport has all but HELD bytes of it; a wire carries one message at a time; a
 * receiver takes all but HELD bytes of a message itself, and then decodes it. */
static double played(double encode, double sent, double busy, double decode, uint32_t copies,
                     uint32_t messages)
{
    double sender = 0, wire = 0, receiver[8] = { 0 }, last = 0;
    for (uint32_t i = 0; i < messages; i++)
        for (uint32_t c = 0; c < copies; c++) {
            double begin = sender + encode; /* the wire's turn may come later */
            begin = fmax(begin, wire);
            double rest = fmax(begin + sent - busy, receiver[c]); /* HELD bytes need no receiver */
            double there = rest + busy;
            sender = fmax(sender + encode, there - (sent - busy));
            wire = there;
            receiver[c] = there + decode;
            last = fmax(last, receiver[c]);
        }
    return last;
}

static double of(double rate, double bytes)
{
    return 1e3 * bytes / rate;
}

static void check(struct tsr_plan_cluster *cl, const struct tsr_plan_codec_speed *speed,
                  const struct tsr_plan_wire *half, uint32_t copies, uint64_t rows)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_mesh    x, y;
    struct tsr_plan_profile from, to;
    struct tsr_plan_send    way;
    tsr_plan_mesh_of(cl, 0, 2, &x);
    tsr_plan_mesh_of(cl, 1, 1, &y);
    from = *x.profile;
    to = *y.profile;
    x.profile = &from;
    y.profile = &to;
    from.codecs = to.codecs = (struct tsr_plan_codec_speed *)(uintptr_t)speed;
    from.n_codecs = to.n_codecs = 1;
    x.tp = 1;
    y.tp = copies;
    assert_int_equal(tsr_plan_latency_link(cl, &x, &y, TSR_PLAN_DECODE, half, rows, 4096, &way,
                                           &e.err),
                     TSR_OK);
    double f32 = (double)rows * 4096 * 4, wire = f32 / 2;
    double sent = 0.02 + of(1e11, wire), busy = of(1e11, fmax(0, wire - HELD));
    double encode = of(speed->encode, f32), decode = of(speed->decode, f32);
    double one = played(encode, sent, busy, decode, copies, 1);
    double few = played(encode, sent, busy, decode, copies, MESSAGES);
    double many = played(encode, sent, busy, decode, copies, 2 * MESSAGES);
    /* sums of 400 terms: 1e-9 is far above their rounding */
    assert_true(fabs(way.ms - one) <= 1e-9 * one);
    assert_true(fabs(way.every_ms - (many - few) / MESSAGES) <= 1e-9 * way.every_ms);
    assert_true(way.every_ms <= way.ms);
    /* identical messages: the first one's way, and then one after each period */
    assert_true(fabs(way.ms + (MESSAGES - 1) * way.every_ms - few) <= 1e-9 * few);
}

static void threads(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_cluster *cl = cluster("t4x3-v100");
    struct tsr_plan_wire     half;
    assert_int_equal(tsr_plan_wire_open(&half, reg, "plain:dtype=bf16", &e.err), TSR_OK);
    for (uint64_t i = 0; i < 2000; i++) {
        struct tsr_plan_codec_speed s = { "plain:dtype=bf16", 1e8 * pow(1e4, tsr_uniform(3, 1, i)),
                                          1e8 * pow(1e4, tsr_uniform(3, 2, i)), "s", 0 };
        uint32_t                    copies = 1 + (uint32_t)(tsr_uniform(3, 3, i) * 4);
        uint64_t                    rows = 1 + (uint64_t)(pow(512, tsr_uniform(3, 4, i)));
        check(cl, &s, &half, copies, rows);
    }
    tsr_plan_wire_close(&half);
    tsr_plan_cluster_destroy(cl);
}

/* Without the codec's entry there is one time, the wire's. */
static void no_entry(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_cluster *cl = cluster("t4x3-v100");
    struct tsr_plan_mesh     x, y;
    struct tsr_plan_send     way;
    tsr_plan_mesh_of(cl, 0, 2, &x);
    tsr_plan_mesh_of(cl, 1, 1, &y);
    assert_int_equal(tsr_plan_latency_link(cl, &x, &y, TSR_PLAN_PREFILL, NULL, 4096, 7168, &way,
                                           &e.err),
                     TSR_OK);
    assert_true(way.every_ms == way.ms && way.ms > 0);
    tsr_plan_cluster_destroy(cl);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(threads), cmocka_unit_test(no_entry) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
