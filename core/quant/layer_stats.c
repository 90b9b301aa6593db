/* Statistics of one layer: room for them, and which of them are needed. */
#include "quant/calibrate_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

static void free_const(const float **p)
{
    free((void *)(uintptr_t)*p);
    *p = NULL;
}

void tsr_quant_layer_stats_limit(struct tsr_quant_layer_stats *s, uint64_t need)
{
    for (uint64_t i = 0; s->site && i < s->sites; i++) {
        struct tsr_quant_stats *q = &s->site[i];
        const struct {
            uint64_t      bit;
            const float **array;
        } parts[] = {
            { TSR_NEED_HESSIAN, &q->hessian },   { TSR_NEED_ABSMAX, &q->absmax },
            { TSR_NEED_MEAN, &q->mean },         { TSR_NEED_VARIANCE, &q->variance },
            { TSR_NEED_MEAN_ABS, &q->mean_abs }, { TSR_NEED_INPUTS, &q->inputs },
            { TSR_NEED_CROSS, &q->cross },
        };
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (!(need & parts[k].bit))
                free_const(parts[k].array);
        if (!q->inputs)
            q->input_rows = 0;
        if (!(need & TSR_NEED_TOP))
            s->top[i] = NAN;
    }
}

void tsr_quant_layer_stats_free(struct tsr_quant_layer_stats *s)
{
    tsr_quant_layer_stats_limit(s, 0);
    tsr_quant_recording_free(&s->block);
    free(s->site);
    free(s->top);
    free(s->borrowed);
    *s = (struct tsr_quant_layer_stats){ 0 };
}

tsr_status tsr_quant_layer_stats_new(struct tsr_quant_layer_stats *s, uint64_t sites,
                                     uint64_t sequence, struct tsr_err *err)
{
    *s = (struct tsr_quant_layer_stats){ .sequence = sequence };
    s->site = tsr_new(sites, sizeof *s->site);
    s->top = tsr_new(sites, sizeof *s->top);
    s->borrowed = tsr_new(sites, sizeof *s->borrowed);
    if (!s->site || !s->top || !s->borrowed) {
        tsr_quant_layer_stats_free(s);
        return tsr_fail_nomem(err, sites * sizeof *s->site, "statistics of a layer");
    }
    s->sites = sites;
    for (uint64_t i = 0; i < sites; i++)
        s->top[i] = NAN;
    return TSR_OK;
}
