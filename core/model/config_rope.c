/* Rotary embedding: `rope_theta` + `rope_scaling` (older) or `rope_parameters` (newer). */
#include "base/mem.h"
#include "model/arch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POSITIONS (INT64_C(1) << 31)

/* Factors of long rope, one per rotated pair. */
static tsr_status factors(const struct tsr_config_source *s, const json_t *o, const char *key,
                          uint64_t n, float **out)
{
    json_t *a;
    TSR_TRY(tsr_json_sub(o, s->name, key, true, JSON_ARRAY, &a, s->err));
    if (json_array_size(a) != n)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\" has %zu entries, %llu are needed", s->name,
                        key, json_array_size(a), (unsigned long long)n);
    *out = tsr_new(n, sizeof **out);
    if (!*out)
        return tsr_fail_nomem(s->err, n * sizeof **out, key);
    for (uint64_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        double        d = json_is_number(v) ? json_number_value(v) : (double)NAN;
        if (!(d > 1e-30 && d < 1e30))
            return tsr_fail(s->err, TSR_E_INPUT, "%s: \"%s\"[%llu] is not a positive number", s->name,
                            key, (unsigned long long)i);
        (*out)[i] = (float)d;
    }
    return TSR_OK;
}

static tsr_status original_positions(const struct tsr_config_source *s, const json_t *o,
                                     const struct tsr_hparams *hp, int64_t *v)
{
    static const char key[] = "original_max_position_embeddings";
    *v = (int64_t)hp->max_positions;
    TSR_TRY(tsr_json_int(o, s->name, key, false, 1, MAX_POSITIONS, v, s->err));
    /* the top level wins, as in the reference */
    return tsr_json_int(s->json, s->name, key, false, 1, MAX_POSITIONS, v, s->err);
}

static tsr_status rope_llama3(const struct tsr_config_source *s, const json_t *o,
                              struct tsr_hparams *hp)
{
    struct tsr_rope *r = &hp->rope;
    int64_t          original;
    r->scaling = TSR_ROPE_LLAMA3;
    TSR_TRY(tsr_json_real(o, s->name, "factor", true, 1.0, 1e6, &r->factor, s->err));
    TSR_TRY(tsr_json_real(o, s->name, "low_freq_factor", true, 1e-6, 1e6, &r->low_freq_factor,
                          s->err));
    TSR_TRY(tsr_json_real(o, s->name, "high_freq_factor", true, 1e-6, 1e6, &r->high_freq_factor,
                          s->err));
    TSR_TRY(original_positions(s, o, hp, &original));
    r->original_positions = (uint64_t)original;
    if (!(r->high_freq_factor > r->low_freq_factor))
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"high_freq_factor\" %g must be above \"low_freq_factor\" %g", s->name,
                        r->high_freq_factor, r->low_freq_factor);
    return TSR_OK;
}

static tsr_status rope_long(const struct tsr_config_source *s, const json_t *o,
                            struct tsr_hparams *hp)
{
    struct tsr_rope *r = &hp->rope;
    int64_t          original;
    r->scaling = TSR_ROPE_LONG;
    TSR_TRY(original_positions(s, o, hp, &original));
    r->original_positions = (uint64_t)original;
    r->factor = (double)hp->max_positions / (double)original;
    TSR_TRY(tsr_json_real(o, s->name, "factor", false, 1e-6, 1e6, &r->factor, s->err));
    /* log(original) is 0 for 1; such a model does not exist */
    if (r->factor > 1.0 && original < 2)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"original_max_position_embeddings\" must be at least 2", s->name);
    r->attention_factor =
        r->factor <= 1.0 ? 1.0 : sqrt(1.0 + log(r->factor) / log((double)original));
    TSR_TRY(tsr_json_real(o, s->name, "attention_factor", false, 1e-6, 1e6, &r->attention_factor,
                          s->err));
    TSR_TRY(factors(s, o, "short_factor", r->dim / 2, &r->short_factor));
    return factors(s, o, "long_factor", r->dim / 2, &r->long_factor);
}

tsr_status tsr_config_rope(const struct tsr_config_source *s, struct tsr_hparams *hp,
                           bool partial_allowed)
{
    struct tsr_rope *r = &hp->rope;
    json_t          *o, *old;
    const char      *type = "default", *old_type = NULL;
    double           partial = 1.0;
    hp->positions = TSR_POS_ROPE;
    r->theta = 10000.0;
    r->factor = r->attention_factor = 1.0;
    r->scaling = TSR_ROPE_NONE;
    r->original_positions = hp->max_positions;
    TSR_TRY(tsr_json_real(s->json, s->name, "rope_theta", false, 1.0, 1e15, &r->theta, s->err));
    TSR_TRY(tsr_json_real(s->json, s->name, "partial_rotary_factor", false, 0.0, 1.0, &partial,
                          s->err));
    TSR_TRY(tsr_json_sub(s->json, s->name, "rope_parameters", false, JSON_OBJECT, &o, s->err));
    TSR_TRY(tsr_json_sub(s->json, s->name, "rope_scaling", false, JSON_OBJECT, &old, s->err));
    if (!o)
        o = old;
    if (o) {
        if (json_object_get(o, "full_attention") || json_object_get(o, "sliding_attention"))
            return tsr_fail(s->err, TSR_E_INPUT,
                            "%s: \"rope_parameters\" per layer type are not supported", s->name);
        TSR_TRY(tsr_json_real(o, s->name, "rope_theta", false, 1.0, 1e15, &r->theta, s->err));
        TSR_TRY(tsr_json_real(o, s->name, "partial_rotary_factor", false, 0.0, 1.0, &partial,
                              s->err));
        TSR_TRY(tsr_json_str(o, s->name, "type", false, &old_type, s->err));
        if (old_type)
            type = old_type;
        TSR_TRY(tsr_json_str(o, s->name, "rope_type", false, &type, s->err));
    }
    if (partial != 1.0 && !partial_allowed)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: \"partial_rotary_factor\" %g is not supported for this family", s->name,
                        partial);
    r->dim = (uint32_t)((double)hp->head_dim * partial);
    if (r->dim < 2 || r->dim % 2 != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %u of %u values of a head would rotate; the number must be even and "
                        "at least 2",
                        s->name, r->dim, hp->head_dim);
    if (strcmp(type, "default") == 0)
        return TSR_OK;
    if (strcmp(type, "linear") == 0) {
        r->scaling = TSR_ROPE_LINEAR;
        return tsr_json_real(o, s->name, "factor", true, 1.0, 1e6, &r->factor, s->err);
    }
    if (strcmp(type, "llama3") == 0)
        return rope_llama3(s, o, hp);
    /* "su" is long rope's name in the first Phi-3 checkpoints */
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return rope_long(s, o, hp);
    return tsr_fail(s->err, TSR_E_INPUT,
                    "%s: rope type \"%.40s\" is not supported; default, linear, llama3 and longrope "
                    "are",
                    s->name, type);
}
