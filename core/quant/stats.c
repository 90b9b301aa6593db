/* Statistics of a linear's inputs: who needs which, and who owns them. */
#include "quant/quant.h"

static const struct need {
    uint64_t    bit;
    const char *what;
} needs[] = {
    { TSR_NEED_HESSIAN, "the Hessian of the inputs" },
    { TSR_NEED_ABSMAX, "the absolute maxima of the inputs" },
    { TSR_NEED_MEAN, "the mean of the inputs" },
    { TSR_NEED_VARIANCE, "the variance of the inputs" },
    { TSR_NEED_MEAN_ABS, "the mean magnitude of the inputs" },
    { TSR_NEED_SENSITIVITY, "the sensitivity of every weight" },
    { TSR_NEED_INPUTS, "recorded inputs" },
    { TSR_NEED_CROSS, "the inputs in the original model next to those of the quantized layers" },
};

static const float *array_of(const struct tsr_quant_stats *s, uint64_t bit)
{
    switch (bit) {
    case TSR_NEED_HESSIAN:
        return s->hessian;
    case TSR_NEED_ABSMAX:
        return s->absmax;
    case TSR_NEED_MEAN:
        return s->mean;
    case TSR_NEED_VARIANCE:
        return s->variance;
    case TSR_NEED_MEAN_ABS:
        return s->mean_abs;
    case TSR_NEED_SENSITIVITY:
        return s->sensitivity;
    case TSR_NEED_INPUTS:
        return s->inputs;
    case TSR_NEED_CROSS:
        return s->cross;
    default:
        return NULL;
    }
}

/* Without TSR_NEED_CROSS, which only a sequential run has: it is collected where it is needed. */
static const uint64_t collected = TSR_NEED_ABSMAX | TSR_NEED_MEAN | TSR_NEED_VARIANCE |
                                  TSR_NEED_MEAN_ABS | TSR_NEED_HESSIAN | TSR_NEED_INPUTS;

uint64_t tsr_quant_need_collect(uint64_t need)
{
    return (need & UINT32_MAX) | (need >> 32 & collected);
}

tsr_status tsr_quant_need_check(uint64_t need, const struct tsr_quant_stats *stats, uint64_t cols,
                                const char *plugin, const char *name, struct tsr_err *err)
{
    for (uint64_t i = 0; i < 32; i++) { /* above: welcome, not needed */
        uint64_t bit = need & UINT64_C(1) << i;
        if (bit == 0 || (stats && array_of(stats, bit)))
            continue;
        const char *what = "a statistic that this version does not know";
        for (uint64_t n = 0; n < sizeof needs / sizeof *needs; n++)
            if (needs[n].bit == bit)
                what = needs[n].what;
        if (stats && bit == TSR_NEED_CROSS) /* all other linears have it */
            return tsr_fail(
                err, TSR_E_INPUT,
                "quantizer '%s' needs %s for '%s', which calibration does not collect for "
                "routed experts; turn the option off for them by a rule, as {tensors: "
                "\"*.experts.*\", OPTION: false}",
                plugin, what, name);
        if (stats || !(bit & (collected | TSR_NEED_CROSS)))
            return tsr_fail(err, TSR_E_INPUT, "quantizer '%s' needs %s for '%s', which %s", plugin,
                            what, name,
                            bit & collected ? "was not collected" : "calibration does not collect");
        return tsr_fail(err, TSR_E_INPUT,
                        "quantizer '%s' needs %s for '%s'; put a calibrate step before it (the "
                        "verb: --text FILE)",
                        plugin, what, name);
    }
    if (need && stats && stats->cols != cols)
        return tsr_fail(err, TSR_E_INPUT,
                        "the statistics for '%s' have %llu columns, the weights %llu", name,
                        (unsigned long long)stats->cols, (unsigned long long)cols);
    return TSR_OK;
}

struct tsr_quant_stats tsr_quant_stats_for(uint64_t need, const struct tsr_quant_stats *stats)
{
    struct tsr_quant_stats s = { .struct_size = sizeof s };
    if (!stats || need == 0)
        return s;
    need |= need >> 32; /* TSR_NEED_IF_THERE */
    s.cols = stats->cols;
    s.tokens = stats->tokens;
    s.hessian = need & TSR_NEED_HESSIAN ? stats->hessian : NULL;
    s.absmax = need & TSR_NEED_ABSMAX ? stats->absmax : NULL;
    s.mean = need & TSR_NEED_MEAN ? stats->mean : NULL;
    s.variance = need & TSR_NEED_VARIANCE ? stats->variance : NULL;
    s.mean_abs = need & TSR_NEED_MEAN_ABS ? stats->mean_abs : NULL;
    s.sensitivity = need & TSR_NEED_SENSITIVITY ? stats->sensitivity : NULL;
    s.inputs = need & TSR_NEED_INPUTS ? stats->inputs : NULL;
    s.input_rows = s.inputs ? stats->input_rows : 0;
    s.cross = need & TSR_NEED_CROSS ? stats->cross : NULL;
    return s;
}
