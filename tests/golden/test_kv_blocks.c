/* Keys of int4 in blocks of positions, those of the backend and those of a codec of a plugin: over several blocks the engine gives what a plain backend in double precision gives,
 * and no bit depends on the pieces in which a sequence comes, on its neighbours, or on what a slot has gone back from. */
#include "golden.h"
#include "naive.h"

#include "engine/internal.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N       100 /* positions: three blocks and a part of one */
#define CONTEXT 120 /* no multiple of a block */

static struct tsr_pool     *pool;
static struct tsr_registry *registry;
static struct golden        g;
static uint32_t             ids[N];
static uint32_t             kv; /* int4, or the codec with the same bytes */

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(2, NULL, &pool);
    golden_load(&g, "llama3");
    kv = TSR_Q4;
    for (uint32_t i = 0; i < N; i++)
        ids[i] = (i * 37 + i * i % 11) % (uint32_t)g.model->hp.vocab;
    return 0;
}

static int set_up_codec(void **state)
{
    (void)set_up(state);
    kv = golden_codec("kivi:bits=4");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_free(&g);
    golden_registry_close(registry, pool);
    return 0;
}

static struct tsr_engine *engine(uint32_t slots, uint64_t chunk)
{
    struct tsr_engine_options opt = {
        .kv_dtype = kv, .slots = slots, .context = CONTEXT, .chunk = chunk
    };
    return golden_engine(registry, g.model, NULL, opt);
}

/* Tokens ids[first .. end) of a slot, `salt` added to each id; logits of the last one. */
static void run(struct tsr_engine *e, uint32_t slot, uint64_t first, uint64_t end, uint32_t salt,
                float *logits)
{
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_engine_token t[N];
    for (uint64_t i = first; i < end; i++)
        t[i - first] =
            (struct tsr_engine_token){ .id = (ids[i] + salt) % (uint32_t)g.model->hp.vocab,
                                       .slot = slot,
                                       .logits = i + 1 == end };
    if (tsr_engine_forward(e, t, end - first, logits, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
}

static float *new_row(void)
{
    float *v = malloc(g.model->hp.vocab * sizeof *v);
    assert_non_null(v);
    return v;
}

/* Not rounding alone: the errors of the codes are far above the tolerance, and F16 would not pass. */
static void as_a_plain_backend(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct naive              n = { 0 };
    struct tsr_engine_device *dev = NULL;
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = {
        .kv_dtype = TSR_Q4, .slots = 2, .context = CONTEXT, .chunk = 41
    };
    uint64_t vocab = g.model->hp.vocab;
    double   range = 0, off = 0, far = 0;
    (void)state;
    if (tsr_engine_device_wrap(&dev, registry, &naive_backend, &n, &err.err) != TSR_OK ||
        tsr_engine_create_on(&e, dev, g.model, NULL, &opt, &err.err) != TSR_OK)
        fail_msg("%s", err.text);
    float *want = golden_forward(e, ids, N, false);
    tsr_engine_destroy(e);
    tsr_engine_device_close(dev);
    e = engine(2, 0);
    float *got = golden_forward(e, ids, N, false);
    tsr_engine_destroy(e);
    opt.kv_dtype = TSR_F16;
    e = golden_engine(registry, g.model, NULL, opt);
    float *f16 = golden_forward(e, ids, N, false);
    tsr_engine_destroy(e);
    for (uint64_t i = 0; i < N * vocab; i++) {
        range = fmax(range, fabs((double)want[i]));
        off = fmax(off, fabs((double)got[i] - (double)want[i]));
        far = fmax(far, fabs((double)f16[i] - (double)want[i]));
    }
    print_message("range %g: off by %g, f16 by %g\n", range, off, far);
    /* a code may go to the other side of a tie, which moves a key by one step of 15 */
    assert_true(off <= 2e-3 * range);
    assert_true(far > 4 * off);
    free(want);
    free(got);
    free(f16);
}

static void pieces_change_no_bit(void **state)
{
    static const uint64_t chunks[] = { 1, 7, 31, 32, 33, 64, 100 };
    size_t                size = N * g.model->hp.vocab * sizeof(float);
    struct tsr_engine    *e = engine(1, 0);
    float                *want = golden_forward(e, ids, N, true);
    (void)state;
    tsr_engine_destroy(e);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        e = engine(1, chunks[i]);
        float *got = golden_forward(e, ids, N, false);
        if (memcmp(got, want, size) != 0)
            fail_msg("chunks of %llu differ", (unsigned long long)chunks[i]);
        free(got);
        tsr_engine_destroy(e);
    }
    free(want);
}

/* Three sequences at different positions in one call, one behind the other and in turns. */
static void neighbours_change_no_bit(void **state)
{
    static const uint64_t   from[] = { 0, 20, 31 }, upto[] = { 70, 60, 99 };
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_engine_token t[3 * N];
    size_t                  vocab = g.model->hp.vocab;
    float                  *want = malloc(3 * vocab * sizeof *want), *got = malloc(3 * vocab * 4);
    (void)state;
    assert_true(want && got);
    for (uint32_t s = 0; s < 3; s++) {
        struct tsr_engine *e = engine(1, 0);
        run(e, 0, 0, upto[s], s, want + s * vocab);
        tsr_engine_destroy(e);
    }
    for (int turns = 0; turns < 2; turns++) {
        struct tsr_engine *e = engine(3, 200);
        uint64_t           at[3] = { from[0], from[1], from[2] }, n = 0;
        uint32_t           last[3] = { 0 };
        for (uint32_t s = 0; s < 3; s++)
            if (from[s])
                run(e, s, 0, from[s], s, got);
        for (uint64_t step = 0; step < 3 * N; step++) {
            uint32_t s = turns ? (uint32_t)(step % 3) : (uint32_t)(step / N);
            if (at[s] == upto[s])
                continue;
            t[n] = (struct tsr_engine_token){ .id = (ids[at[s]] + s) % (uint32_t)vocab,
                                              .slot = s,
                                              .logits = at[s] + 1 == upto[s] };
            last[s] += t[n].logits;
            at[s]++;
            n++;
        }
        if (tsr_engine_forward(e, t, n, got, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        /* logits come in the order of the tokens */
        for (uint64_t i = 0, k = 0; i < n; i++)
            if (t[i].logits && memcmp(got + k++ * vocab, want + t[i].slot * vocab, vocab * 4) != 0)
                fail_msg("sequence %u differs, turns %d", t[i].slot, turns);
        tsr_engine_destroy(e);
        assert_int_equal(last[0] + last[1] + last[2], 3);
    }
    free(want);
    free(got);
}

/* A slot that went on to `longer` with other ids, and back: what it keeps gives the bits of a slot that never was longer. */
static void going_back_leaves_no_trace(void **state)
{
    static const struct {
        uint64_t length, longer, kept;
    } cases[] = {
        { 40, 50, 40 }, { 40, 64, 40 }, { 40, 65, 32 }, { 64, 65, 64 },
        { 63, 96, 32 }, { 5, 40, 0 },   { 96, 97, 96 }, { 97, 99, 97 },
        { 70, 70, 70 }, { 64, 64, 64 }, { 33, 99, 32 },
    };
    float *want = new_row(), *got = new_row();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_engine *e = engine(2, 0);
        run(e, 1, 0, N, 0, want);
        run(e, 0, 0, cases[i].length, 0, got);
        if (cases[i].longer > cases[i].length)
            run(e, 0, cases[i].length, cases[i].longer, 5, got);
        assert_int_equal(tsr_engine_rewind(e, 0, cases[i].length), cases[i].kept);
        if (!cases[i].kept)
            tsr_engine_reset(e, 0);
        assert_int_equal(tsr_engine_length(e, 0), cases[i].kept);
        run(e, 0, cases[i].kept, N, 0, got);
        if (memcmp(got, want, g.model->hp.vocab * sizeof *got) != 0)
            fail_msg("from %llu back to %llu: other logits", (unsigned long long)cases[i].longer,
                     (unsigned long long)cases[i].length);
        tsr_engine_destroy(e);
    }
    /* twice: to the border of a block, whose keys are another's by then */
    struct tsr_engine *e = engine(1, 0);
    run(e, 0, 0, 70, 0, got);
    assert_int_equal(tsr_engine_rewind(e, 0, 64), 64);
    assert_int_equal(tsr_engine_rewind(e, 0, 60), 32);
    run(e, 0, 32, N, 0, got);
    assert_memory_equal(got, want, g.model->hp.vocab * sizeof *got);
    tsr_engine_destroy(e);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_plain_backend),
        cmocka_unit_test(pieces_change_no_bit),
        cmocka_unit_test(neighbours_change_no_bit),
        cmocka_unit_test(going_back_leaves_no_trace),
    };
    return cmocka_run_group_tests_name("kv_blocks", tests, set_up, tear_down) +
           cmocka_run_group_tests_name("kv_blocks of a codec", tests, set_up_codec, tear_down);
}
