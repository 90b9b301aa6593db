/* Folders of quant_method fp8 with a scale for each block of 128 x 128: their codes and scales are as stored, and the
 * logits those of a reference that widened each weight itself. */
#include "checkpoint.h"

#include "model/bind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tsr_model *load(const char *name, bool headers_only, bool streamed)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    char              path[512];
    (void)snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    tsr_status st = streamed ? tsr_model_load_streamed(&m, path, &e.err)
                             : tsr_model_load(&m, path, headers_only, &e.err);
    if (st != TSR_OK)
        fail_msg("%s", e.text);
    return m;
}

static void as_recorded(void **state)
{
    static const char *const names[] = { "fp8-deepseek_v3", "fp8-qwen3", "fp8-qwen3-ue8m0" };
    struct tsr_pool         *pool = NULL;
    struct tsr_registry     *r = golden_registry(2, NULL, &pool);
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct checkpoint c;
        checkpoint_load(&c, names[i]);
        struct tsr_model *m = load(names[i], false, false), *head = load(names[i], true, false);
        struct tsr_model *streamed = load(names[i], false, true);
        assert_string_equal(m->packed_as, "fp8");
        assert_int_equal(m->bytes, head->bytes);
        assert_string_equal(m->hash, streamed->hash);
        checkpoint_check_rows(names[i], m, &c);
        checkpoint_check_logits(names[i], r, m, &c);
        checkpoint_check_logits(names[i], r, streamed, &c);
        tsr_model_destroy(m);
        tsr_model_destroy(head);
        tsr_model_destroy(streamed);
        checkpoint_free(&c);
    }
    golden_registry_close(r, pool);
}

/* Scales that are powers of two: tessera.mx/1 has the stored codes, and a byte for each scale of a row. */
static void bytes_of_powers(void **state)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    struct tsr_model                    *m = load("fp8-qwen3-ue8m0", false, false);
    const struct tsr_model_packed       *p = m->packed->lin[1][TSR_MODEL_DOWN];
    struct tsr_safetensors               st;
    const struct tsr_safetensors_tensor *t;
    (void)state;
    assert_string_equal(p->format.id, TSR_FORMAT_MX);
    assert_int_equal(p->format.element, TSR_MX_FP8_E4M3);
    assert_int_equal(p->format.group, 128);
    assert_int_equal(tsr_safetensors_open(&st, CHECKPOINTS "fp8-qwen3-ue8m0/model.safetensors",
                                          &e.err),
                     TSR_OK);
    t = tsr_safetensors_find(&st, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(t);
    uint64_t       n = p->rows * p->cols, groups = (p->cols + 127) / 128;
    unsigned char *codes = malloc(n);
    float         *scales = malloc((p->rows + 127) / 128 * groups * sizeof *scales);
    assert_true(codes && scales && p->code_stride == p->cols);
    assert_int_equal(t->end - t->begin, n);
    assert_int_equal(tsr_safetensors_read(&st, t, codes, &e.err), TSR_OK);
    assert_memory_equal(codes, p->codes, n);
    t = tsr_safetensors_find(&st, "model.layers.1.mlp.down_proj.weight_scale_inv");
    assert_non_null(t);
    assert_int_equal(tsr_safetensors_read(&st, t, scales, &e.err), TSR_OK);
    for (uint64_t r = 0; r < p->rows; r++)
        for (uint64_t g = 0; g < groups; g++) {
            unsigned char b = ((const unsigned char *)p->meta)[r * p->meta_stride + g];
            uint32_t      bits;
            memcpy(&bits, &scales[r / 128 * groups + g], sizeof bits);
            assert_int_equal(bits, (uint32_t)b << 23);
        }
    free(codes);
    free(scales);
    tsr_safetensors_close(&st);
    tsr_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_recorded),
                                        cmocka_unit_test(bytes_of_powers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
