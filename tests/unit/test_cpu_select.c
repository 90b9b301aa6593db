/* The CPU backend's selection against its sentences written as loops, on every instruction set, and the public
 * vectors. */
#include "compensate_fixture.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>

/* One chunk bucket by bucket; NaN is in none. */
static uint32_t brute_chunk(const float *x, uint32_t n, uint32_t base, uint32_t take,
                            const float *f, uint32_t *list)
{
    bool     taken[1024] = { 0 };
    uint32_t left = take, count = 0;
    for (int b = 0; b < 32; b++)
        for (uint32_t i = 0; i < n && left; i++) {
            float a = fabsf(x[i]);
            if (a >= f[b] && (b == 0 || a < f[b - 1])) {
                taken[i] = true;
                left--;
            }
        }
    for (uint32_t i = 0; i < n; i++)
        if (taken[i])
            list[count++] = base + i;
    return count;
}

static void brute_select(const float *x, uint32_t cols, uint32_t k, const float *f, uint32_t *list)
{
    list[0] = 0;
    for (uint32_t at = 0; at < cols; at += 1024) {
        uint32_t n = cols - at < 1024 ? cols - at : 1024;
        list[0] += brute_chunk(x + at, n, at, k * n / 1024, f, list + 1 + list[0]);
    }
}

static void test_select(void **state)
{
    static const uint32_t shapes[][2] = { { 4096, 32 }, { 1024, 1024 }, { 640, 16 },
                                          { 17, 1023 }, { 3000, 100 },  { 1, 1024 },
                                          { 2048, 1 },  { 1040, 700 },  { 5120, 8 } };
    char                  text[512] = "";
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int way = 0; way < 4; way++) {
                uint32_t cols = shapes[s][0], k = shapes[s][1], T = 3, rows[2] = { 2, 0 };
                float    floors[32], *x = rnd_new((uint64_t)T * cols, 1);
                for (uint64_t i = 0; i < (uint64_t)T * cols; i++) {
                    x[i] = x[i] * x[i] * x[i] * 4;
                    if (way == 1) /* many that are equal, to the last bit at a floor */
                        x[i] = (float)((int)(x[i] * 2)) * 0.5f;
                    if (way == 2 && rnd() % 7 == 0)
                        x[i] = rnd() % 2 ? NAN : INFINITY;
                    if (way == 3)
                        x[i] = 0;
                }
                floors_of(4, way == 3 ? 0 : 0.5, floors);
                uint64_t          room = 1 + (uint64_t)cols;
                struct tsr_tensor tx = dev(c, x, TSR_F32, T, cols, 8);
                struct tsr_tensor tr = dev(c, rows, TSR_U32, 1, 2, 0);
                struct tsr_tensor tl = dev(c, NULL, TSR_U32, 2, room, 4);
                if (select_on(c, &tx, &tr, k, floors, &tl, text) != TSR_OK)
                    fail_msg("%s", text);
                uint32_t *got = host_of(c, &tl), *want = calloc(room, 4);
                assert_non_null(want);
                for (int i = 0; i < 2; i++) {
                    brute_select(x + (uint64_t)rows[i] * cols, cols, k, floors, want);
                    assert_memory_equal(got + (uint64_t)i * room, want,
                                        ((uint64_t)want[0] + 1) * 4);
                }
                free(got);
                free(want);
                free(x);
                undev(c, &tx);
                undev(c, &tr);
                undev(c, &tl);
            }
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* ---- public vectors --------------------------------------------------------------------------- */

static void test_vectors(void **state)
{
    json_error_t e;
    json_t      *all = json_load_file(TEST_GOLDEN "/dec/vectors.json", 0, &e), *v;
    size_t       at;
    char         text[512] = "";
    (void)state;
    assert_non_null(all);
    assert_int_equal(json_array_size(json_object_get(all, "selection_vectors")), 4);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        json_array_foreach (json_object_get(all, "selection_vectors"), at, v) {
            const json_t *bits = json_object_get(v, "x_fp16_bits");
            const json_t *want = json_object_get(v, "selected_lowest_index_first");
            uint32_t      k = (uint32_t)json_integer_value(json_object_get(v, "k_chunk"));
            uint64_t      n = json_array_size(bits);
            float         x[1024], floors[32];
            for (uint64_t i = 0; i < n; i++)
                x[i] = f16((uint16_t)json_integer_value(json_array_get(bits, i)));
            floors_of(json_number_value(json_object_get(v, "b0")),
                      json_number_value(json_object_get(v, "b15")), floors);
            struct tsr_tensor tx = dev(c, x, TSR_F32, 1, n, 0);
            struct tsr_tensor tl = dev(c, NULL, TSR_U32, 1, 1 + n, 0);
            if (select_on(c, &tx, NULL, k, floors, &tl, text) != TSR_OK)
                fail_msg("%s", text);
            uint32_t *got = host_of(c, &tl);
            assert_int_equal(got[0], json_array_size(want));
            for (uint32_t i = 0; i < got[0]; i++)
                assert_int_equal(got[1 + i], json_integer_value(json_array_get(want, i)));
            free(got);
            undev(c, &tx);
            undev(c, &tl);
        }
        tsr_cpu_destroy(c);
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_select),
                                        cmocka_unit_test(test_vectors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
