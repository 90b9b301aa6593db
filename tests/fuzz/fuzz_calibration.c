/* A file tessera.calibration/1 from bytes, against a model of one layer: what is taken from it has all that was asked
 * for, in the shapes of the model. */
#include "base/mem.h"
#include "quant/calibrate_internal.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_NAME "layer-00000.safetensors"
#define SEQLEN    4

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

/* Every number that a quantizer would read. */
static void touch(const float *x, uint64_t n)
{
    unsigned sum = 0;
    must(x != NULL);
    for (uint64_t i = 0; i < n * sizeof *x; i++)
        sum += ((const unsigned char *)x)[i];
    must(sum < UINT32_MAX);
}

static void look(const struct tsr_quant_layer_stats *s, const struct tsr_model *m, uint64_t need)
{
    must(s->sequence == SEQLEN);
    for (int i = 0; i < TSR_MODEL_SITES; i++) {
        const struct tsr_quant_stats *q = &s->site[i];
        must(q->cols == tsr_model_site_cols(m, (enum tsr_site)i));
        touch(q->absmax, q->cols);
        touch(q->mean, q->cols);
        touch(q->variance, q->cols);
        touch(q->mean_abs, q->cols);
        if (need & TSR_NEED_HESSIAN)
            touch(q->hessian, q->cols * q->cols);
        if (need & TSR_NEED_INPUTS)
            touch(q->inputs, q->input_rows * q->cols);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf                   e = TSR_ERRBUF(e);
    struct tsr_model_linear             lin[TSR_MODEL_LINEARS] = { 0 };
    struct tsr_model_layer              layer = { .lin = lin };
    struct tsr_model                    m = { .path = "m",
                                              .layers = &layer,
                                              .hp = { .layers = 1,
                                                      .linears = TSR_MODEL_LINEARS,
                                                      .sites = TSR_MODEL_SITES,
                                                      .hidden = 8,
                                                      .ffn = 12,
                                                      .heads = 2,
                                                      .head_dim = 4 } };
    struct tsr_quant_calibration_source source = { .model = &m, .keep = 2 };
    struct tsr_quant_calibration        c = { .layers = 1,
                                              .sites = TSR_MODEL_SITES,
                                              .sequences = 2,
                                              .seqlen = SEQLEN,
                                              .tokens = 8,
                                              .hash = "xxh3:of a calibration",
                                              .source = &source };
    static const uint64_t               needs[] = { TSR_MOMENTS, TSR_MOMENTS | TSR_NEED_HESSIAN,
                                                    TSR_MOMENTS | TSR_NEED_TOP, TSR_COLLECTED };
    char                               *folder = tsr_strdup(fuzz_store(FILE_NAME, data, size));
    source.folder = folder;
    must(folder != NULL);
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        struct tsr_quant_layer_stats out = { 0 };
        uint64_t                     have = 0;
        e.text[0] = '\0';
        tsr_status st =
            tsr_quant_calibration_file_read(&c, 0, needs[i], needs[i], &have, &out, &e.err);
        must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
        must(st == TSR_OK || e.text[0] != '\0');
        if (st != TSR_OK || (have & needs[i]) != needs[i])
            continue;
        look(&out, &m, needs[i]);
        tsr_quant_layer_stats_free(&out);
    }
    free(folder);
    return 0;
}
