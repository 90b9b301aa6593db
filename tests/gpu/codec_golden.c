/* codec_golden.c - recorded vectors of mx and int4_bf16, through the device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "base/json.h"
#include "messages.h"

static json_t *vectors(struct pair *p, const char *folder, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/vectors.json", folder, name);
    json_t *j = json_load_file(path, 0, NULL);
    if (!j)
        (void)tsr_fail(&p->err.err, TSR_E_INPUT, "%s: cannot be read", path);
    return j;
}

static uint64_t whole(const json_t *v, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(v, key));
}
static const char *string(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    return s ? s : "";
}
static double real(const json_t *list, uint64_t i)
{
    return json_number_value(json_array_get(list, i));
}

/* There and back on the device. */
static bool round_trip(struct pair *p, struct message *m, const struct message_codec *c,
                       const float *x, float *y)
{
    uint8_t *wire = NULL;
    bool     ok = message_open(p, m, c);
    if (ok) {
        wire = malloc(m->bytes);
        ok = wire && message_encode(p, m, x, wire) && message_decode(p, m, wire, y, false);
    }
    free(wire);
    message_close(p, m);
    return ok;
}

/* ---- mx ------------------------------------------------------------------------------------------ */

static bool mx_vector(struct pair *p, struct tsr_registry *r, const json_t *v)
{
    const json_t *input = json_object_get(v, "input_bits");
    const json_t *expected = json_object_get(v, "expected_bits");
    uint64_t      n = json_array_size(input);
    char          text[128];
    (void)snprintf(text, sizeof text, "mx:element=%s,block=%u,scale_bits=%u,rounding=%s",
                   string(v, "elem_format"), (uint32_t)whole(v, "block_size"),
                   (uint32_t)whole(v, "scale_bits"), string(v, "rounding"));
    struct message_codec c = { .self = NULL };
    struct message       m = { .what = string(v, "name"), .rows = 1, .cols = n };
    float               *x = malloc(4 * n), *y = malloc(4 * n);
    bool                 ok = x && y && message_codec_open(p, r, &c, text);
    for (uint64_t k = 0; ok && k < n; k++)
        x[k] =
            tsr_bits_f32((uint32_t)strtoul(json_string_value(json_array_get(input, k)), NULL, 16));
    ok = ok && round_trip(p, &m, &c, x, y);
    for (uint64_t k = 0; ok && k < n; k++) {
        const char *e = json_string_value(json_array_get(expected, k));
        float want = strcmp(e, "nan") == 0 ? NAN : tsr_bits_f32((uint32_t)strtoul(e, NULL, 16));
        ok = (isnan(y[k]) && isnan(want)) || y[k] == want;
        if (!ok)
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC, "%s: element %u: %a becomes %a, recorded %a",
                           m.what, (uint32_t)k, (double)x[k], (double)y[k], (double)want);
    }
    message_codec_close(&c);
    free(x);
    free(y);
    p->checked++;
    return ok;
}

static bool mx_vectors(struct pair *p, struct tsr_registry *r, const char *folder)
{
    json_t *list = vectors(p, folder, "mx"), *v;
    json_t *all = json_object_get(list, "vectors");
    bool    ok = list && json_array_size(all) >= 57;
    size_t  i;
    json_array_foreach (all, i, v)
        ok = ok && mx_vector(p, r, v);
    json_decref(list);
    return ok;
}

/* ---- int4_bf16 ------------------------------------------------------------------------------------ */

static float *matrix(const json_t *rows, uint64_t cols)
{
    uint64_t n = json_array_size(rows);
    float   *x = calloc(n * cols + 1, sizeof *x);
    for (uint64_t i = 0; x && i < n * cols; i++)
        x[i] = (float)real(json_array_get(rows, i / cols), i % cols);
    return x;
}

static bool observe_all(struct pair *p, const struct message_codec *c, const json_t *texts,
                        uint32_t ranks, uint64_t cols)
{
    bool ok = true;
    for (uint64_t s = 0; s < json_array_size(texts); s++)
        for (uint32_t r = 0; ok && r < ranks; r++) {
            const json_t        *rows = json_array_get(json_array_get(texts, s), r);
            float               *x = matrix(rows, cols);
            struct tsr_codec_job j = { .struct_size = sizeof j,
                                       .source = r,
                                       .rows = json_array_size(rows),
                                       .cols = cols,
                                       .src = x };
            ok = x && c->t->observe(c->self, &j, &p->err.err) == TSR_OK;
            free(x);
        }
    return ok && c->t->freeze(c->self, &p->err.err) == TSR_OK;
}

/* The recorded scales are doubles: a number is within 1e-6 of itself, its code the same. */
static bool close_to(struct pair *p, const json_t *v, uint32_t r, const float *y, uint64_t cols)
{
    const json_t *want = json_array_get(json_object_get(v, "dequantized"), r);
    const json_t *range = json_array_get(json_object_get(v, "R"), r);
    const json_t *kept = json_object_get(v, "selected_bf16_features");
    for (uint64_t j = 0; j < cols; j++) {
        double w = real(want, j), scale = real(range, j) / 14;
        bool   bf16 = false;
        for (uint64_t k = 0; k < json_array_size(kept); k++)
            bf16 = bf16 || (uint64_t)json_integer_value(json_array_get(kept, k)) == j;
        if (!(fabs(y[j] - w) <= 1e-6 * fabs(w)) ||
            (!bf16 && rint(y[j] / scale) != rint(w / scale))) {
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                           "int4_bf16: rank %u, feature %u: %.9g, recorded %.9g", r, (uint32_t)j,
                           (double)y[j], w);
            return false;
        }
    }
    return true;
}

static bool int4_vectors(struct pair *p, struct tsr_registry *r, const char *folder)
{
    json_t              *v = vectors(p, folder, "int4_bf16");
    uint32_t             ranks = (uint32_t)whole(v, "N");
    uint64_t             cols = whole(v, "E");
    struct message_codec c = { .self = NULL };
    float               *x = matrix(json_object_get(v, "probe_partial_sums"), cols);
    float               *y = malloc(4 * cols + 4);
    bool                 ok = v && x && y && ranks == 3 && cols == 192 &&
              message_codec_open(p, r, &c, "int4_bf16") &&
              observe_all(p, &c, json_object_get(v, "calibration_sequences"), ranks, cols);
    for (uint32_t k = 0; ok && k < ranks; k++) {
        struct message m = { .what = "int4_bf16", .source = k, .rows = 1, .cols = cols };
        ok = round_trip(p, &m, &c, x + k * cols, y) && close_to(p, v, k, y, cols);
        p->checked++;
    }
    message_codec_close(&c);
    free(x);
    free(y);
    json_decref(v);
    return ok;
}

bool pair_check_vectors(struct pair *p, struct tsr_registry *r, const char *folder)
{
    return mx_vectors(p, r, folder) && int4_vectors(p, r, folder);
}
