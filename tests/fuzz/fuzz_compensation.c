/* A file of residuals from bytes, against a model of one layer: what is accepted lies inside of them. */
#include "base/mem.h"
#include "compensate/compensation.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static uint64_t sum_of(const unsigned char *p, uint64_t n)
{
    uint64_t s = 0;
    for (uint64_t i = 0; i < n; i++)
        s += p[i];
    return s;
}

/* Every byte that an engine would read. */
static uint64_t touch(const struct tsr_compensation *c)
{
    uint64_t s = 0;
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_compensate_residual *r = &c->lin[0][i];
        if (!r->codes)
            continue;
        must((uintptr_t)r->codes % 64 == 0 && r->stride % 64 == 0);
        must(r->bits == 16 || r->scales);
        for (uint64_t k = 0; k < r->inputs; k++)
            s += sum_of(r->codes + k * r->stride,
                        tsr_compensate_residual_stride(r->bits, r->outputs));
        if (r->scales)
            s += sum_of((const unsigned char *)r->scales, 2 * r->outputs);
        must(c->site[0][tsr_model_linear_site((enum tsr_linear_id)i)].top != NULL);
    }
    for (int i = 0; i < TSR_MODEL_SITES; i++) {
        const struct tsr_compensate_site_profile *p = &c->site[0][i];
        for (uint64_t k = 0; p->top && k < p->cols; k++)
            must(p->top[k] >= 0 && p->meansq[k] >= 0 && p->lost[k] >= 0);
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[TSR_MODEL_LINEARS] = {
        "q", "k", "v", "o", "gate", "up", "down"
    };
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_model_linear lin[TSR_MODEL_LINEARS] = { 0 };
    struct tsr_model_layer  layer = { .lin = lin };
    struct tsr_model        m = { .path = "m",
                                  .layers = &layer,
                                  .hp = { .layers = 1,
                                          .linears = TSR_MODEL_LINEARS,
                                          .sites = TSR_MODEL_SITES,
                                          .hidden = 8,
                                          .ffn = 12,
                                          .heads = 2,
                                          .head_dim = 3 } };
    struct tsr_compensation c = { 0 };
    unsigned char          *copy = tsr_new_aligned(size ? size : 1, 1);
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        layer.lin[i].w.name = names[i];
        layer.lin[i].w.cols = tsr_model_site_cols(&m, tsr_model_linear_site((enum tsr_linear_id)i));
        layer.lin[i].w.rows = i == TSR_MODEL_GATE || i == TSR_MODEL_UP  ? 12
                              : i == TSR_MODEL_O || i == TSR_MODEL_DOWN ? 8
                                                                        : 6;
    }
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    tsr_status st = tsr_compensation_parse(&c, "input", copy, size, NULL, &m, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (st == TSR_OK) {
        must(touch(&c) < UINT64_MAX);
        tsr_compensation_close(&c);
    }
    free(copy);
    return 0;
}
