/* Descriptions of tessera.table/1 that are refused, in one sentence: in the files of a packed model, and by the
 * backend. */
#include "table_fixture.h"

#include <math.h>

#include "checkpoint/packed/packed_model.h"

/* A line of a packed model's file with these parameters: what is wrong, or "". */
static void said(const char *parameters, char *text, size_t cap)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = calloc(1, sizeof *p);
    char                     line[600];
    assert_non_null(p);
    (void)snprintf(line, sizeof line,
                   "{\"format\":\"tessera.table/1\",%s,\"cols\":64,\"source\":\"F32\",\"plugin\":"
                   "\"x\",\"squared_error\":0}",
                   parameters);
    tsr_status st = tsr_packed_understand(p, "w", line, &e.err);
    (void)snprintf(text, cap, "%.200s", st == TSR_OK ? "" : e.text);
    tsr_model_packed_destroy(p);
}

#define TERNARY "\"table\":[-1,0,1,2]"

static void lines_of_files(void **state)
{
    static const struct {
        const char *parameters, *says;
    } all[] = {
        { "\"bits\":2,\"group\":16,\"scale_bits\":0,\"scales\":\"F16\"," TERNARY, "" },
        { "\"bits\":2,\"group\":256,\"scale_bits\":8,\"scale_element\":\"fp8_e4m3\"," TERNARY, "" },
        { "\"bits\":6,\"group\":16,\"scale_bits\":8", "" },
        { "\"bits\":2,\"group\":16,\"scale_bits\":0,\"scales\":\"F16\"", "\"table\"" },
        { "\"bits\":3,\"group\":16,\"scale_bits\":0,\"scales\":\"F16\"," TERNARY, "4 values" },
        { "\"bits\":6,\"group\":16,\"scale_bits\":8," TERNARY, "4 values" },
        { "\"bits\":2,\"group\":16,\"scale_bits\":0,\"scales\":\"F16\",\"table\":[0,1,1e60,2]",
          "value 2 is not an F32 number" },
        { "\"bits\":2,\"group\":16,\"scale_bits\":0,\"scales\":\"F16\",\"table\":[0,\"x\",1,2]",
          "value 1 is not an F32 number" },
        { "\"bits\":2,\"group\":48,\"scale_bits\":0,\"scales\":\"F16\"," TERNARY, "not known" },
        { "\"bits\":2,\"group\":8,\"scale_bits\":0,\"scales\":\"F16\"," TERNARY, "not known" },
        { "\"bits\":2,\"group\":16,\"scale_bits\":7," TERNARY, "not known" },
        { "\"bits\":2,\"group\":256,\"scale_bits\":6," TERNARY, "not known" },
        { "\"bits\":2,\"group\":16,\"scale_bits\":6,\"scale_element\":\"fp8_e4m3\"," TERNARY,
          "not known" },
        { "\"bits\":2,\"group\":16,\"scale_bits\":8,\"scale_element\":\"fp8_e5m2\"," TERNARY,
          "is not \"fp8_e4m3\"" },
        { "\"bits\":9,\"group\":16,\"scale_bits\":8", "bits" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[300];
        said(all[i].parameters, text, sizeof text);
        if ((*all[i].says == '\0') != (*text == '\0') || !strstr(text, all[i].says))
            fail_msg("%s: says '%s', not '%s'", all[i].parameters, text, all[i].says);
    }
}

static void backend_says(struct wt *w, const char *says)
{
    char            text[256] = "";
    struct tsr_err  err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    struct tsr_cpu *c = cpu_new("scalar");
    void           *h = NULL;
    assert_non_null(c);
    assert_int_equal(tsr_cpu_weight_load(c, &w->desc, &h, &err), TSR_E_INVAL);
    if (!strstr(text, says))
        fail_msg("it says '%s', not '%s'", text, says);
    tsr_cpu_destroy(c);
}

static void weights(void **state)
{
    struct wt               w;
    const struct tsr_format good = { .struct_size = sizeof good,
                                     .id = TSR_FORMAT_TABLE,
                                     .bits = 2,
                                     .group = 16,
                                     .scale_dtype = TSR_F16 };
    (void)state;
    wt_table(&w, 4, 64, 2, 16, TSR_F16, 0, 0);
    w.format.table[1] = NAN;
    backend_says(&w, "entries of its table must be finite");
    w.format = good;
    w.format.table[4] = 1.0f;
    backend_says(&w, "0 past the last");
    w.format = good;
    w.format.struct_size = (uint32_t)offsetof(struct tsr_format, table);
    backend_says(&w, "no room for a table");
    w.format = good;
    w.format.zero = TSR_ZERO_STORED;
    backend_says(&w, "no zero points");
    w.format = good;
    w.format.scale_dtype = TSR_BF16;
    backend_says(&w, "scales must be F16 or F32");
    w.format = good;
    w.format.group = 24;
    backend_says(&w, "a power of two from 16 on");
    w.format = good;
    w.format.scale_bits = 4;
    backend_says(&w, "scale_bits must be 0, 6 or 8");
    w.format.scale_bits = 6;
    w.format.group = 256;
    backend_says(&w, "groups under scale_bits");
    w.format = good;
    w.format.scale_bits = 8;
    w.format.element = TSR_MX_FP8_E5M2;
    backend_says(&w, "must be FP8 E4M3");
    w.format = good;
    w.desc.meta_stride = 7;
    backend_says(&w, "shorter than a row");
    w.desc.rows = UINT64_C(1) << 40;
    backend_says(&w, "rows and columns must be 1 to 2^31");
    wt_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lines_of_files),
                                        cmocka_unit_test(weights) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
