/* Random checkpoints: they load, their weights are distributed as said, the same seed gives the
 * same bytes however many threads work. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/random_model.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static const char *at(const char *name)
{
    static char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const struct tsr_checkpoint_random_shape usual = {
    .vocab = 300,
    .hidden = 96,
    .layers = 2,
    .ffn = 200,
    .max_positions = 64,
    .heads = 6,
    .kv_heads = 2,
    .dtype = TSR_BF16,
    .seed = 1,
};

static void write_one(const struct tsr_checkpoint_random_shape *s, unsigned threads,
                      char hash[TSR_HASH_TEXT])
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_pool  *pool = NULL;
    assert_int_equal(tsr_pool_create(&pool, threads, &e.err), TSR_OK);
    if (tsr_checkpoint_random_model_write(folder, s, pool, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_pool_destroy(pool);
    assert_int_equal(tsr_hash_file(at("model.safetensors"), hash, &e.err), TSR_OK);
}

/* Elements of such a checkpoint. */
static uint64_t size_of(const struct tsr_checkpoint_random_shape *s)
{
    uint64_t head = s->head_dim ? s->head_dim : s->hidden / s->heads;
    uint64_t attention = 2 * s->hidden * head * (s->heads + s->kv_heads);
    return s->vocab * s->hidden * (s->tied ? 1 : 2) + s->hidden +
           s->layers * (attention + 3 * s->hidden * s->ffn + 2 * s->hidden);
}

static void test_loads(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = { TSR_F32, TSR_F16, TSR_BF16 };
    for (int i = 0; i < 6; i++) {
        struct tsr_errbuf                  e = TSR_ERRBUF(e);
        struct tsr_checkpoint_random_shape s = usual;
        struct tsr_model                  *m = NULL;
        char                               hash[TSR_HASH_TEXT];
        s.dtype = dtypes[i % 3];
        s.tied = i >= 3;
        s.head_dim = i % 2 ? 32 : 0;
        write_one(&s, 1, hash);
        if (tsr_model_load(&m, folder, false, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        assert_int_equal(m->parameters, size_of(&s));
        assert_int_equal(m->hp.head_dim, i % 2 ? 32 : 16);
        assert_int_equal(m->hp.tied, s.tied);
        assert_int_equal(m->hp.n_eos, 0);
        assert_int_equal(m->embed.dtype, s.dtype);
        assert_true(m->layers[1].ffn_in.gain[95] == 1.0f);
        /* 28,800 draws: five standard errors are 0.0006 for the mean, 2.1 % for the deviation,
         * whose own error is smaller than a normal's */
        uint64_t n = m->embed.rows * m->embed.cols;
        float   *f = malloc(n * sizeof *f);
        assert_non_null(f);
        tsr_widen(f, m->embed.data, s.dtype, n);
        double sum = 0, squares = 0;
        for (uint64_t k = 0; k < n; k++) {
            sum += (double)f[k];
            squares += (double)f[k] * (double)f[k];
        }
        assert_true(fabs(sum / (double)n) < 0.0006);
        assert_true(fabs(sqrt(squares / (double)n) / 0.02 - 1.0) < 0.021);
        free(f);
        tsr_model_destroy(m);
    }
}

static void test_same_bytes(void **state)
{
    (void)state;
    struct tsr_checkpoint_random_shape s = usual;
    char                               a[TSR_HASH_TEXT], b[TSR_HASH_TEXT], c[TSR_HASH_TEXT];
    s.vocab = 1000;
    write_one(&s, 1, a);
    write_one(&s, 7, b);
    assert_string_equal(a, b);
    s.seed = 2;
    write_one(&s, 2, c);
    assert_string_not_equal(a, c);
}

static void refuse(struct tsr_checkpoint_random_shape s, const char *about, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_checkpoint_random_model_write(folder, &s, NULL, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, about, facts));
}

static void test_refuses(void **state)
{
    (void)state;
    struct tsr_checkpoint_random_shape s = usual;
    s.vocab = 0;
    refuse(s, "", "0");
    s = usual;
    s.kv_heads = 4;
    refuse(s, "", "6 4 96");
    s = usual;
    s.hidden = 97;
    refuse(s, "", "97");
    s = usual;
    s.head_dim = 7;
    refuse(s, "", "7");
    s = usual;
    s.dtype = TSR_I8;
    refuse(s, "", "dtype");
    s = usual;
    s.hidden = s.vocab = s.ffn = UINT64_C(1) << 24;
    s.heads = s.kv_heads = 1024;
    s.layers = UINT64_C(1) << 24;
    refuse(s, "", NULL);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/tessera-random-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(at("config.json"));
    (void)unlink(at("model.safetensors"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
