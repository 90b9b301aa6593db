/* The safetensors reader refuses what the format forbids, in one sentence; the writer writes what
 * the reader reads, aligned. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Parses a header of n bytes followed by `section` bytes of data. */
static tsr_status parse(struct tsr_safetensors *st, const char *json, uint64_t n, uint64_t section,
                        struct tsr_errbuf *e)
{
    unsigned char *b = malloc(n + 8);
    assert_non_null(b);
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(n >> 8 * i);
    memcpy(b + 8, json, n);
    tsr_status r = tsr_safetensors_parse(st, "a.safetensors", b, n + 8, n + 8 + section, &e->err);
    free(b);
    return r;
}

static void refuse_n(const char *json, uint64_t n, uint64_t section, const char *facts)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    tsr_status             r = parse(&st, json, n, section, &e);
    if (r != TSR_E_INPUT)
        fail_msg("status %d for %.80s", r, json);
    assert_true(error_is(&e.err, "a.safetensors", facts));
}

static void refuse(const char *json, uint64_t section, const char *facts)
{
    refuse_n(json, strlen(json), section, facts);
}

static void accept(const char *json, uint64_t section, uint64_t tensors)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    if (parse(&st, json, strlen(json), section, &e) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(st.n, tensors);
    tsr_safetensors_close(&st);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void test_accepts(void **state)
{
    (void)state;
    accept("{}", 0, 0);
    accept("{}   ", 0, 0);
    accept("{\"__metadata__\":{}}", 0, 0);
    accept("{" T("a", "F32", "[2,3]", 0, 24) "}", 24, 1);
    accept("{" T("scalar", "F64", "[]", 0, 8) "}", 8, 1);
}

static void test_lengths(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    const uint64_t         bad[] = {
                1, 9, 100000000, 100000001, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 7
    };
    for (uint64_t n = 0; n < 8; n++)
        assert_int_equal(tsr_safetensors_parse(&st, "a", "\1\0\0\0\0\0\0\0{", n, n, &e.err),
                         TSR_E_INPUT);
    for (size_t i = 0; i < COUNT(bad); i++) {
        unsigned char b[16] = { 0 };
        for (int k = 0; k < 8; k++)
            b[k] = (unsigned char)(bad[i] >> 8 * k);
        b[8] = '{';
        assert_int_equal(tsr_safetensors_parse(&st, "a", b, sizeof b, sizeof b, &e.err),
                         TSR_E_INPUT);
        /* a file that is long enough, of which only the start was handed over */
        assert_int_equal(tsr_safetensors_parse(&st, "a", b, sizeof b, UINT64_MAX, &e.err),
                         TSR_E_INPUT);
    }
    unsigned char zero[8] = { 0 };
    assert_int_equal(tsr_safetensors_parse(&st, "a", zero, 8, 8, &e.err), TSR_E_INPUT);
}

static void test_json(void **state)
{
    (void)state;
    refuse(" {}", 0, "{");
    refuse("[]", 0, "{");
    refuse("{", 0, "1");
    refuse("{}x", 0, "2");
    refuse_n("{}\0", 3, 0, "2");
    refuse("{\"a\"}", 0, ": 4");
    refuse("{\"a\":{}}", 0, "dtype");
    refuse("{\"a\":1}", 0, "5");
    refuse("{\"a\":[[[[[[[[]]]]]]]]}", 0, "5");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}", 4, "a 0 29");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets 49");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
           "data_offsets 51");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
           "a dtype");
    refuse("{\"a\":{\"dtype\":\"F32\",\"more\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
           "more");
    refuse("{\"\\ud800\":{}}", 0, "8");
    refuse("{\"\\u0000\":{}}", 0, "NUL");
    refuse("{\"\\x\":{}}", 0, "4");
    refuse("{\"\\u12\":{}}", 0, "7");
    refuse("{\"a", 0, "3");
    refuse("{\"a\\", 0, "4");
    refuse("{\"\xff\":{}}", 0, "2");
    refuse("{\"\xc0\x80\":{}}", 0, "2");
    refuse("{\"\xed\xa0\x80\":{}}", 0, "2");
    refuse("{\"\xf5\x80\x80\x80\":{}}", 0, "2");
    refuse_n("{\"a\0b\":{}}", 10, 0, "NUL");
    refuse("{\"a\nb\":{}}", 0, "3");
    refuse("{\"a\\nb\":{}}", 0, "7");
    refuse("{\"\":{}}", 0, "1 1024");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ a");
    refuse("{\"__metadata__\":[]}", 0, "__metadata__");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ 34");
    refuse("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "a __metadata__");
}

static void test_shapes(void **state)
{
    (void)state;
    refuse("{" T("w", "F32", "[4194305,4194305,211106198978564]", 0, 16) "}", 16, "2^64 2");
    refuse("{" T("w", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, "1");
    refuse("{" T("w", "F32", "[9223372036854775808,2]", 0, 0) "}", 0, "1");
    refuse("{" T("w", "F32", "[0,9223372036854775808,2]", 0, 0) "}", 0, "2");
    refuse("{" T("w", "F32", "[4611686018427387905]", 0, 4) "}", 4, "2^64");
    refuse("{" T("w", "F32", "[-1]", 0, 4) "}", 4, "w 0");
    refuse("{" T("w", "F32", "[1,-0]", 0, 4) "}", 4, "w 1");
    refuse("{" T("w", "F32", "[1.5]", 0, 4) "}", 4, "w 0 30");
    refuse("{" T("w", "F32", "[1e400]", 0, 4) "}", 4, "w 0 30");
    refuse("{" T("w", "F32", "[01]", 0, 4) "}", 4, "0");
    refuse("{" T("w", "F32", "[\"4\"]", 0, 4) "}", 4, "w 0 29");
    refuse("{" T("w", "F32", "[18446744073709551616]", 0, 4) "}", 4, "64");
    refuse("{" T("w", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "8");
    accept("{" T("w", "F32", "[1,1,1,1,1,1,1,1]", 0, 4) "}", 4, 1);
    refuse("{" T("w", "F33", "[1]", 0, 4) "}", 4, "F33");
    refuse("{" T("w", "f32", "[1]", 0, 4) "}", 4, "w f32");
    refuse("{" T("w", "F4", "[3]", 0, 2) "}", 2, "w F4 3");
    accept("{" T("w", "F4", "[4]", 0, 2) "}", 2, 1);
    accept("{" T("w", "F8_E4M3", "[4]", 0, 4) "}", 4, 1);
}

static void test_offsets(void **state)
{
    (void)state;
    refuse("{" T("w", "F32", "[1]", 8, 4) "}", 8, "w data_offsets 8");
    refuse("{" T("w", "F32", "[2]", 0, 8) "}", 4, "w 8 4");
    refuse("{" T("w", "F32", "[2]", 0, 7) "}", 7, "8");
    refuse("{" T("w", "F32", "[2]", 0, 9) "}", 9, "8");
    refuse("{" T("w", "U8", "[1]", 18446744073709551615, 0) "}", 1,
           "w data_offsets 18446744073709551615");
    refuse("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 3, 7) "}", 7, "b 3 4");
    refuse("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 5, 9) "}", 9, "b 5 4");
    refuse("{" T("a", "U8", "[4]", 1, 5) "}", 5, "a 1 0");
    refuse("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 0, 4) "}", 4, "b 0 4");
    refuse("{" T("a", "U8", "[4]", 0, 4) "}", 5, "1");
    refuse("{}", 1, "1");
    refuse("{" T("a", "U8", "[4]", 0, 4) "," T("a", "U8", "[4]", 4, 8) "}", 8, "a");
    /* empty tensors stand at borders only */
    accept("{" T("a", "U8", "[4]", 0, 4) "," T("z", "U8", "[0]", 4, 4) "}", 4, 2);
    accept("{" T("a", "U8", "[4]", 0, 4) "," T("z", "U8", "[0]", 0, 0) "}", 4, 2);
    refuse("{" T("a", "U8", "[4]", 0, 4) "," T("z", "U8", "[0]", 2, 2) "}", 4, "z 2 4");
}

/* Limits at, below and above: name length, tensor count. */
static void test_limits(void **state)
{
    (void)state;
    char *json = malloc(4096);
    assert_non_null(json);
    for (int over = 0; over < 2; over++) {
        int n = (int)TSR_ST_MAX_NAME + over;
        (void)snprintf(json, 4096,
                       "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", n, 0);
        if (over)
            refuse(json, 0, "1025");
        else
            accept(json, 0, 1);
    }
    free(json);
    static const char one[] = "\"%07u\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}%s";
    uint64_t          cap = (TSR_ST_MAX_TENSORS + 1) * UINT64_C(64), at = 1;
    json = malloc(cap);
    assert_non_null(json);
    json[0] = '{';
    for (unsigned i = 0; i <= TSR_ST_MAX_TENSORS; i++)
        at += (uint64_t)snprintf(json + at, cap - at, one, i, i == TSR_ST_MAX_TENSORS ? "}" : ",");
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    assert_int_equal(parse(&st, json, at, 0, &e), TSR_E_NOMEM);
    assert_true(error_is(&e.err, "a.safetensors", "262144"));
    /* of one that may be read, the names alone are kept */
    json[at -= strlen("\"0262144\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}")] =
        '\0';
    json[at - 1] = '}';
    assert_int_equal(parse(&st, json, at, 0, &e), TSR_OK);
    assert_int_equal(st.n, TSR_ST_MAX_TENSORS);
    assert_ptr_equal(st.tensors[TSR_ST_MAX_TENSORS - 1].name,
                     st.text + (TSR_ST_MAX_TENSORS - 1) * UINT64_C(8));
    tsr_safetensors_close(&st);
    free(json);
}

static void test_round_trip(void **state)
{
    (void)state;
    char              path[] = "/tmp/tessera-st-XXXXXX", file[64];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_non_null(mkdtemp(path));
    (void)snprintf(file, sizeof file, "%s/a.safetensors", path);
    struct tsr_st_out *o;
    const uint64_t     shape[] = { 3, 5 }, none[] = { 0 };
    float              w[15];
    uint16_t           h[5] = { 1, 2, 3, 4, 5 };
    for (int i = 0; i < 15; i++)
        w[i] = (float)i * 0.5f;
    assert_int_equal(tsr_safetensors_create(&o, file, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_metadata(o, "format", "pt", &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_metadata(o, "quote \"\\\n", "\xc3\xa9", &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_declare(o, "z", TSR_F32, 2, shape, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_declare(o, "a\"b", TSR_BF16, 1, shape + 1, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_declare(o, "empty", TSR_U8, 1, none, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_OK);
    assert_false(tsr_path_exists(file));
    tsr_safetensors_put(o, w, sizeof w);
    tsr_safetensors_put(o, h, sizeof h);
    if (tsr_safetensors_commit(o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);

    struct tsr_safetensors st;
    if (tsr_safetensors_open(&st, file, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(st.data_offset % 64, 0);
    assert_int_equal(st.n, 3);
    assert_int_equal(st.n_meta, 2);
    assert_string_equal(st.meta_values[0], "pt");
    assert_string_equal(st.meta_keys[1], "quote \"\\\n");
    const struct tsr_safetensors_tensor *z = tsr_safetensors_find(&st, "z");
    float                                back[15];
    assert_non_null(z);
    assert_int_equal(z->rank, 2);
    assert_int_equal(z->dtype, TSR_F32);
    assert_int_equal(tsr_safetensors_read(&st, z, back, &e.err), TSR_OK);
    assert_memory_equal(back, w, sizeof w);
    assert_non_null(tsr_safetensors_find(&st, "a\"b"));
    assert_null(tsr_safetensors_find(&st, "b"));
    tsr_safetensors_close(&st);

    /* too few bytes, a name twice, a second begin: our own mistakes are told, no file appears */
    assert_int_equal(unlink(file), 0);
    assert_int_equal(tsr_safetensors_create(&o, file, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_declare(o, "z", TSR_F32, 2, shape, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_OK);
    tsr_safetensors_put(o, w, 4);
    assert_int_equal(tsr_safetensors_commit(o, &e.err), TSR_E_INVAL);
    assert_int_equal(tsr_safetensors_create(&o, file, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_declare(o, "z", TSR_F32, 2, shape, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_declare(o, "z", TSR_F32, 2, shape, &e.err), TSR_OK);
    assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_E_INVAL);
    tsr_safetensors_abort(o);
    tsr_safetensors_abort(NULL);
    assert_false(tsr_path_exists(file));
    assert_int_equal(rmdir(path), 0); /* no part file either */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),    cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_json),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_offsets),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
