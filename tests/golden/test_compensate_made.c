/* Residuals are made for packed models whose folded scales are known, and for no others: a folder of a block
 * search from before scales were kept has norms that tell. */
#include "golden.h"
#include "wide.h"

#include "base/file.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/tokenizer.h"
#include "compensate/compensation.h"
#include "quant/residuals.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEMO TSR_SOURCE_ROOT "/configs/demo"

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f)
{
    (void)s;
    (void)kind;
    (void)f;
    return remove(path);
}

/* The norm in front of q, k and v of a layer takes a scale of 2 in all channels; recorded as that of the
 * columns, or not. */
static void fold(struct tsr_model_overlay *o, const struct tsr_model *m, uint64_t layer,
                 bool recorded)
{
    struct tsr_model_norm *n = &o->norm[layer][TSR_MODEL_OVERLAY_ATTN_IN];
    uint64_t               hidden = m->hp.hidden;
    float *gain = malloc(hidden * sizeof *gain), *scale = malloc(hidden * sizeof *scale);
    assert_true(gain && scale);
    *n = m->layers[layer].attn_in;
    for (uint64_t i = 0; i < hidden; i++) {
        gain[i] = n->gain[i] / 2;
        scale[i] = 2;
    }
    n->gain = gain;
    n->bias = NULL;
    if (recorded)
        o->scale[layer][TSR_MODEL_SITE_ATTN_IN] = scale;
    else
        free(scale);
}

/* What the file holds of each linear of a layer without scales is what is made of it alone; rows of q, k and v, and of
 * gate and up, lie behind each other where all of them are packed. */
static void check_rows(struct tsr_registry *r, const struct tsr_model *m,
                       const struct tsr_model_overlay *o, const char *folder, uint64_t layer,
                       bool joined)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_compensation *c = NULL;
    OK(tsr_compensation_open(&c, folder, m, &err.err));
    const struct tsr_compensate_residual *lin = c->lin[layer];
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        struct tsr_compensate_residual_source src = { .w = &m->layers[layer].lin[i].w,
                                                      .packed = o->lin[layer][i] };
        struct tsr_compensate_residual        want = { 0 };
        struct tsr_compensate_residual_report report;
        assert_int_equal(lin[i].codes != NULL, src.packed != NULL);
        if (!src.packed)
            continue;
        OK(tsr_compensate_residual_make(&want, tsr_plugin_registry_pool(r), &src, 4, NULL, &report,
                                        &err.err));
        assert_int_equal(lin[i].inputs, want.inputs);
        assert_int_equal(lin[i].outputs, want.outputs);
        assert_memory_equal(lin[i].scales, want.scales, want.outputs * 2);
        for (uint64_t k = 0; k < want.inputs; k++)
            assert_memory_equal(lin[i].codes + k * lin[i].stride, want.codes + k * want.stride,
                                want.stride);
        tsr_compensate_residual_free(&want);
    }
    uint64_t q = tsr_compensate_residual_stride(4, lin[TSR_MODEL_Q].outputs);
    uint64_t gate = tsr_compensate_residual_stride(4, lin[TSR_MODEL_GATE].outputs);
    assert_int_equal(lin[TSR_MODEL_K].codes == lin[TSR_MODEL_Q].codes + q, joined);
    assert_int_equal(lin[TSR_MODEL_Q].stride == q, !joined);
    assert_ptr_equal(lin[TSR_MODEL_UP].codes, lin[TSR_MODEL_GATE].codes + gate);
    assert_int_equal(lin[TSR_MODEL_GATE].stride, 2 * gate);
    tsr_compensation_destroy(c);
}

static void test_scales(void **state)
{
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_pool                   *pool;
    struct tsr_registry               *r = golden_registry(1, NULL, &pool);
    struct tsr_model                  *m = NULL;
    struct tsr_tokenizer              *t = NULL;
    struct tsr_quant_calibration      *c = NULL;
    struct tsr_quant_calibrate_options co = {
        .text = DEMO "/calibration.txt", .samples = 1, .seqlen = 16, .defer = true
    };
    (void)state;
    OK(tsr_model_load(&m, DEMO, false, &err.err));
    OK(tsr_checkpoint_tokenizer_load(&t, DEMO, &err.err));
    OK(tsr_quant_calibrate(&c, r, m, t, &co, &err.err));
    for (int recorded = 0; recorded < 2; recorded++) {
        char                      folder[] = "/tmp/tessera-compensate-XXXXXX", index[96];
        struct tsr_model_overlay *o = wide_pack(r, m, "use: rtn\nbits: 4\ngroup: 32\n");
        struct tsr_quant_compensation_options co2 = { .folder = folder,
                                                      .bits = 4,
                                                      .calibration = c };
        struct tsr_quant_compensation_report  report;
        assert_non_null(mkdtemp(folder));
        fold(o, m, 2, recorded);
        tsr_model_packed_destroy(o->lin[1][TSR_MODEL_K]);
        o->lin[1][TSR_MODEL_K] = NULL;
        for (uint64_t l = 0; l < m->hp.layers; l++)
            OK(tsr_packed_layer_write(folder, m, l, o, "xxh3:0", &err.err));
        OK(tsr_packed_model_finish(folder, m, o, &err.err));
        (void)snprintf(index, sizeof index, "%s/" TSR_COMPENSATION_INDEX, folder);
        tsr_status st = tsr_quant_compensation_make(r, m, &co2, &report, &err.err);
        if (recorded) {
            OK(st);
            assert_int_equal(report.linears, 7 * m->hp.layers - 1);
            check_rows(r, m, o, folder, 0, true);
            check_rows(r, m, o, folder, 1, false);
        } else {
            char want[256];
            (void)snprintf(want, sizeof want,
                           "%s: layer 2 has folded norms but not the scales that were folded; "
                           "quantize it again with this version",
                           folder);
            assert_int_equal(st, TSR_E_INPUT);
            assert_string_equal(err.text, want);
        }
        assert_int_equal(tsr_path_exists(index), recorded);
        tsr_model_overlay_destroy(o);
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    tsr_quant_calibration_destroy(c);
    tsr_tokenizer_destroy(t);
    tsr_model_destroy(m);
    golden_registry_close(r, pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_scales) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
