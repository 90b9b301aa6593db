/* Importance matrices in both forms, and files that are wrong in one way each. */
#include "checkpoint/gguf/imatrix.h"

#include "../fixtures/error_is.h"
#include "base/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64] = "/tmp/test_imatrix.XXXXXX";

static struct {
    unsigned char b[4096];
    size_t        n;
} f;

static void put(const void *p, size_t n)
{
    assert_true(f.n + n <= sizeof f.b);
    memcpy(f.b + f.n, p, n);
    f.n += n;
}

static void put_i32(int32_t v)
{
    put(&v, sizeof v);
}

static void put_u64(uint64_t v)
{
    put(&v, sizeof v);
}

static void put_text(const char *s)
{
    put_u64(strlen(s));
    put(s, strlen(s));
}

static void put_floats(const float *v, size_t n)
{
    put(v, n * sizeof *v);
}

static tsr_status read_file(struct tsr_gguf_imatrix *m, struct tsr_errbuf *e)
{
    *e = (struct tsr_errbuf){ 0 };
    e->err =
        (struct tsr_err){ .struct_size = sizeof e->err, .cap = sizeof e->text, .text = e->text };
    assert_int_equal(tsr_file_store(path, f.b, f.n, &e->err), TSR_OK);
    return tsr_gguf_imatrix_read(m, path, &e->err);
}

static void refused(const char *fact)
{
    struct tsr_gguf_imatrix m;
    struct tsr_errbuf       e;
    assert_int_equal(read_file(&m, &e), TSR_E_INPUT);
    if (!strstr(e.text, fact) || !strstr(e.text, path))
        fail_msg("%s: expected %s", e.text, fact);
}

/* ---- the older form ---------------------------------------------------------------------------- */

static void older(int32_t count, int32_t length, int32_t calls, int32_t n, float last)
{
    const float v[4] = { 8, 0, 4, last };
    f.n = 0;
    put_i32(count);
    put_i32(length);
    put("blk.0.attn_q.weight", 19);
    put_i32(calls);
    put_i32(n);
    put_floats(v, 4);
    put_i32(4);
    put_i32(5);
    put("a.txt", 5);
}

static void older_form(void **state)
{
    struct tsr_gguf_imatrix m;
    struct tsr_errbuf       e;
    (void)state;
    older(1, 19, 4, 4, 6);
    assert_int_equal(read_file(&m, &e), TSR_OK);
    assert_int_equal(m.n, 1);
    assert_null(tsr_gguf_imatrix_find(&m, "blk.0.attn_k.weight"));
    const struct tsr_gguf_imatrix_entry *one = tsr_gguf_imatrix_find(&m, "blk.0.attn_q.weight");
    assert_non_null(one);
    assert_int_equal(one->n, 4);
    assert_true(one->square[0] == 2 && one->square[1] == 0 && one->square[2] == 1 &&
                one->square[3] == 1.5f);
    tsr_gguf_imatrix_free(&m);
}

static void older_form_bad(void **state)
{
    (void)state;
    older(0, 19, 4, 4, 6);
    refused("byte 4");
    older(1, -1, 4, 4, 6);
    refused("byte 8");
    older(1, 1000, 4, 4, 6);
    refused("byte 8");
    older(1, 19, 4, 1 << 30, 6);
    refused("byte 35");
    older(1, 19, 4, 0, 6);
    refused("byte 35");
    older(2, 19, 4, 4, 6);
    refused("byte");
    older(1, 19, 4, 4, -1);
    refused("\"blk.0.attn_q.weight\": value 3");
    older(1, 19, 4, 4, 1.0f / 0.0f);
    refused("value 3");
    f.n = 3;
    refused("byte 0");
    older(1, 19, 4, 4, 6);
    f.n = 51; /* of which the second entry is the first again */
    memcpy(f.b + f.n, f.b + 4, 47);
    f.n += 47;
    f.b[0] = 2;
    refused("twice");
}

/* ---- GGUF --------------------------------------------------------------------------------------- */

static void put_tensor(const char *name, uint64_t cols, uint64_t rows, uint64_t at)
{
    put_text(name);
    put_i32(2);
    put_u64(cols);
    put_u64(rows);
    put_i32(0);
    put_u64(at);
}

static float first_count = 2;

static void gguf(const char *type, const char *counts, uint64_t n_counts, float first)
{
    const float sums[8] = { first, 2, 4, 6, 5, 5, 5, 5 }, count[8] = { first_count, 0 };
    f.n = 0;
    put("GGUF", 4);
    put_i32(3);
    put_u64(2);
    put_u64(1);
    put_text("general.type");
    put_i32(8);
    put_text(type);
    put_tensor("blk.0.ffn_up_exps.weight.in_sum2", 4, 2, 0);
    put_tensor(counts, 1, n_counts, 32);
    while (f.n % 32)
        put("", 1);
    put_floats(sums, 8);
    put_floats(count, 8);
    f.n -= (8 - n_counts) * 4;
    while (f.n % 32)
        put("", 1);
}

static void gguf_form(void **state)
{
    static const float      want[8] = { 0.5f, 1, 2, 3, 1, 1, 1, 1 };
    struct tsr_gguf_imatrix m;
    struct tsr_errbuf       e;
    (void)state;
    gguf("imatrix", "blk.0.ffn_up_exps.weight.counts", 2, 1);
    if (read_file(&m, &e) != TSR_OK)
        fail_msg("%s", e.text);
    const struct tsr_gguf_imatrix_entry *one =
        tsr_gguf_imatrix_find(&m, "blk.0.ffn_up_exps.weight");
    assert_non_null(one);
    assert_int_equal(one->n, 8);
    assert_memory_equal(one->square, want, sizeof want);
    tsr_gguf_imatrix_free(&m);
}

static void gguf_form_bad(void **state)
{
    (void)state;
    gguf("model", "blk.0.ffn_up_exps.weight.counts", 2, 1);
    refused("\"model\"");
    gguf("imatrix", "blk.0.ffn_up_exps.weight.count", 2, 1);
    refused("blk.0.ffn_up_exps.weight.counts");
    gguf("imatrix", "blk.0.ffn_up_exps.weight.counts", 3, 1);
    refused("blk.0.ffn_up_exps.weight.counts");
    gguf("imatrix", "blk.0.ffn_up_exps.weight.counts", 2, 0.0f / 0.0f);
    refused("value 0");
    first_count = -1;
    gguf("imatrix", "blk.0.ffn_up_exps.weight.counts", 2, 1);
    refused("blk.0.ffn_up_exps.weight.counts\": count 0");
    first_count = 1e-40f;
    gguf("imatrix", "blk.0.ffn_up_exps.weight.counts", 2, 1);
    refused("value 0 by the count");
    first_count = 2;
}

static int begin(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(older_form),
                                        cmocka_unit_test(older_form_bad),
                                        cmocka_unit_test(gguf_form),
                                        cmocka_unit_test(gguf_form_bad) };
    return cmocka_run_group_tests(tests, begin, end);
}
