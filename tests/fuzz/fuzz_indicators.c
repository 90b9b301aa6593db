/* A file tessera.indicators/1 or /2 from bytes, for plans of several depths and widths.  The first byte chooses the table. */
#include "plan/cost/quality.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void look(const struct tsr_plan_quality *q, const struct tsr_plan_shape *s,
                 const struct tsr_plan_candidates *c)
{
    must(q->layers == s->layers && q->candidates == c->n && !q->prior && q->basis[0]);
    must(q->raised >= 0 && isfinite(q->raised));
    for (uint64_t i = 0; i < q->layers; i++) {
        must(q->omega[i * c->n + c->n - 1] == 0); /* the original */
        for (uint64_t k = 0; k < c->n; k++)
            must(q->omega[i * c->n + k] >= 0 && isfinite(q->omega[i * c->n + k]));
    }
    for (uint64_t k = 0; k < c->n; k++)
        must(isfinite(tsr_plan_quality_uniform(q, k)));
    if (!q->kl.on)
        return;
    for (double w = 1e-6, last = 0; w < 1e6; w *= 10) { /* the map rises, and turns back */
        double kl = tsr_plan_quality_kl_of(q, w);
        must(kl >= last && tsr_plan_quality_sum_of(q, kl) >= 0);
        last = kl;
    }
    for (uint32_t k = 0; k < q->kl.n_kv; k++)
        must(q->kl.kv[k].kl >= 0 && q->kl.kv[k].context > 0 && !(q->kl.kv[k].half < 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const tables[] = { NULL,      "",       "variance", "variance_stochastic",
                                          "hessian", "random", "measured", "none" };
    if (size < 1 || size > 1u << 16)
        return 0;
    for (uint32_t layers = 1; layers <= 2; layers++) {
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct tsr_plan_candidate v[3] = {
            { .name = "a-3", .scheme = "a", .options = "bits=3", .bits = 3 },
            { .name = "b-5", .scheme = "b", .bits = 5 }, /* between widths of a file */
            { .name = "original", .bits = 16 }
        };
        uint32_t                    cls[2] = { 0, 0 };
        struct tsr_plan_shape_layer layer = { .norms = 1 };
        struct tsr_plan_shape       s = {
                  .name = "m", .layers = layers, .classes = 1, .layer_class = cls, .layer = &layer
        };
        struct tsr_plan_candidates c = { v, 3 };
        struct tsr_plan_quality    q = { 0 };
        char *text = malloc(size); /* of its own, so that reading past it is seen */
        must(text != NULL);
        memcpy(text, data + 1, size - 1);
        v[0].q.self = v[1].q.self = v; /* packed by something */
        tsr_status st = tsr_plan_quality_parse(&q, "i.json", text, size - 1, tables[data[0] % 8],
                                               &s, &c, &e.err);
        must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
        must(st == TSR_OK || e.text[0] != '\0');
        if (st == TSR_OK)
            look(&q, &s, &c);
        tsr_plan_quality_free(&q);
        free(text);
    }
    return 0;
}
