/* Sizes of an arm: as stored and on the device, and where its bits per weight go. */
#include "base/f16.h"
#include "compare/compare.h"
#include "compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bits per weight above the scheme's own and its scales, from which an arm has a remark. */
#define REMARKABLE 0.3

/* Bits per weight of each decoder layer, with scales. */
static json_t *layer_bits(const struct tsr_model *m, const struct tsr_model_overlay *o)
{
    json_t *list = json_array();
    bool    ok = true;
    for (uint64_t l = 0; ok && l < m->hp.layers; l++) {
        uint64_t weights = 0, bytes = 0;
        for (uint64_t i = 0; i < m->hp.linears; i++) {
            const struct tsr_matrix       *w = &m->layers[l].lin[i].w;
            const struct tsr_model_packed *p = o ? o->lin[l][i] : NULL;
            weights += w->rows * w->cols;
            bytes += p ? tsr_model_packed_bytes(p) : w->rows * w->cols * tsr_dtype_size(w->dtype);
        }
        ok = json_array_append_new(list, json_real(8.0 * (double)bytes / (double)weights)) == 0;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* The bit width that a scheme's options or its quantizer's name give; 0: none.  A plan's arm has many. */
static double named_bits(const struct compare_arm *a)
{
    if (a->kind != COMPARE_QUANTIZE || !a->quantize)
        return 0;
    const struct tsr_config_node *bits = tsr_config_node_get(a->quantize, "bits"),
                                 *use = tsr_config_node_get(a->quantize, "use");
    if (bits && bits->kind == TSR_CONFIG_NODE_SCALAR)
        return (double)strtoul(bits->text, NULL, 10);
    const char *name = use && use->kind == TSR_CONFIG_NODE_SCALAR ? use->text : "";
    size_t      n = strlen(name);
    return n && name[n - 1] >= '2' && name[n - 1] <= '8' ? name[n - 1] - '0' : 0; /* int8, nvfp4 */
}

struct part {
    const char *key, *name;
    double      bits;
};
#define PARTS 5

/* "4.38 bits per weight, but the scheme names 3: codes 3.00, tables 1.38" */
static bool put_remark(json_t *j, double named, const struct part *parts)
{
    char   text[300] = "";
    double all = 0;
    for (int i = 0; i < PARTS; i++)
        all += parts[i].bits;
    if (named == 0 || !(all - named - parts[1].bits > REMARKABLE))
        return true;
    compare_add(text, sizeof text, "%.2f bits per weight, but the scheme names %g", all, named);
    for (int i = 0, some = 0; i < PARTS; i++)
        if (parts[i].bits >= 0.005)
            compare_add(text, sizeof text, "%s%s %.2f", some++ ? ", " : ": ", parts[i].name,
                        parts[i].bits);
    return tsr_pipeline_json_put_text(j, "remark", text);
}

static bool put_bits(json_t *j, const struct compare_arm *a, const struct tsr_model_sizes *s)
{
    double            per = 8 / (double)s->weights, named = named_bits(a);
    const struct part parts[PARTS] = {
        { "codes", "codes", per * (double)s->codes },
        { "scales", "scales", per * (double)s->scales },
        { "tables", "tables with outliers", per * (double)s->tables },
        { "order", "column order", per * (double)s->order },
        { "unpacked", "unpacked weights", per * (double)s->unpacked },
    };
    json_t *o = json_object();
    bool    ok = tsr_pipeline_json_put_real(o, "named", named > 0 ? named : (double)NAN);
    for (int i = 0; i < PARTS; i++)
        ok = ok && tsr_pipeline_json_put_real(o, parts[i].key, parts[i].bits);
    return tsr_pipeline_json_put(j, "bits_of", o) && ok && put_remark(j, named, parts);
}

bool compare_put_size(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    const struct tsr_model         *m = c->job->model;
    const struct tsr_model_overlay *o = compare_arm_overlay(c, a);
    struct tsr_model_sizes          s;
    uint64_t                        weights, bytes, original;
    tsr_model_overlay_size_like(m, m->packed, o, &weights, &original);
    tsr_model_overlay_size_like(compare_arm_model(c, a), o, m->packed, &weights, &bytes);
    tsr_model_overlay_sizes_like(compare_arm_model(c, a), o, m->packed, &s);
    return tsr_pipeline_json_put_int(j, "bytes", bytes) &&
           tsr_pipeline_json_put_int(j, "original_bytes", original) &&
           tsr_pipeline_json_put_int(j, "weights", weights) &&
           tsr_pipeline_json_put_real(j, "bits_per_weight",
                                      8.0 * (double)bytes / (double)weights) &&
           put_bits(j, a, &s) &&
           tsr_pipeline_json_put(j, "layer_bits", layer_bits(compare_arm_model(c, a), o));
}

bool compare_put_resident(json_t *j, const struct compare_arm *a, const struct tsr_engine *e)
{
    uint64_t bytes, widened;
    if (!e || a->ranks)
        return true;
    tsr_engine_linears(e, &bytes, &widened);
    return tsr_pipeline_json_put_int(j, "resident_bytes", bytes) &&
           tsr_pipeline_json_put_int(j, "widened", widened);
}
