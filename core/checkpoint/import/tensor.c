/* Stored tensors as importers ask for them. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/import/import.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct tsr_checkpoint_stored *tsr_import_find(const struct tsr_import *im, const char *name,
                                              const char *suffix)
{
    char full[TSR_ST_MAX_NAME + 1];
    int  n = snprintf(full, sizeof full, "%s%s%s", name, *suffix == '_' ? "" : ".", suffix);
    return n > 0 && (size_t)n < sizeof full ? tsr_checkpoint_shards_find(im->shards, full) : NULL;
}

tsr_status tsr_import_fail(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                           const char *fmt, ...)
{
    char    text[700];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tsr_fail(im->err, TSR_E_INPUT, "%s: tensor \"%.200s\" %s",
                    tsr_checkpoint_shards_path(im->shards, e), e->t->name, text);
}

void tsr_import_note(struct tsr_import *im, const char *text)
{
    for (unsigned i = 0; i < TSR_IMPORT_REASONS && !im->again; i++) {
        if (im->reason[i].text && strcmp(im->reason[i].text, text) != 0)
            continue;
        im->reason[i].text = text;
        im->reason[i].n++;
        return;
    }
}

/* Whether word is one of the words of list. */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, " ");
        if (k == n && memcmp(p, word, n) == 0)
            return true;
        p += k + (p[k] == ' ');
    }
    return false;
}

void tsr_import_take(struct tsr_import *im, struct tsr_checkpoint_stored *e)
{
    if (im->hash && !e->imported)
        tsr_model_load_label(im->hash, e->t);
    e->imported = true;
}

tsr_status tsr_import_need(struct tsr_import *im, const char *name, const char *suffix,
                           const char *dtypes, uint32_t rank, const uint64_t *shape,
                           struct tsr_checkpoint_stored **out)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, name, suffix);
    if (!e)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\" is quantized, but its tensor \"%s\" is missing from the "
                        "checkpoint",
                        im->where, name, suffix);
    if (!listed(dtypes, e->t->dtype_name))
        return tsr_import_fail(im, e, "has dtype %s; %s is what a %s checkpoint has there",
                               e->t->dtype_name, dtypes, im->kind->method);
    bool same = e->t->rank == rank;
    for (uint32_t d = 0; same && d < rank; d++)
        same = e->t->shape[d] == shape[d];
    if (!same) {
        char has[200], want[200];
        tsr_safetensors_shape_text(has, sizeof has, e->t->rank, e->t->shape);
        tsr_safetensors_shape_text(want, sizeof want, rank, shape);
        return tsr_import_fail(im, e,
                               "has shape %s; config.json and the bits and groups of its "
                               "quantization_config ask for %s",
                               has, want);
    }
    tsr_import_take(im, e);
    *out = e;
    return TSR_OK;
}

uint64_t tsr_import_elements(const struct tsr_checkpoint_stored *e)
{
    uint64_t n = 1; /* the header was checked: shape times dtype are the tensor's bytes */
    for (uint32_t d = 0; d < e->t->rank; d++)
        n *= e->t->shape[d];
    return n;
}

tsr_status tsr_import_bytes(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                            void **out)
{
    uint64_t bytes = e->t->end - e->t->begin;
    void    *p = tsr_new_aligned(bytes + 8, 1); /* a decoder may look at a whole word at its end */
    if (!p)
        return tsr_fail_nomem(im->err, bytes, e->t->name);
    tsr_status st = tsr_safetensors_read(&im->shards->files[e->file], e->t, p, im->err);
    if (st != TSR_OK) {
        free(p);
        return st;
    }
    memset((char *)p + bytes, 0, 8);
    if (im->hash && !im->headers_only)
        tsr_hasher_update(im->hash, p, bytes);
    *out = p;
    return TSR_OK;
}

float tsr_import_fp8(unsigned code)
{
    int   e = (int)(code >> 3 & 15), m = (int)(code & 7);
    float v = e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10);
    if (e == 15 && m == 7)
        v = NAN;
    return code & 0x80 ? -v : v;
}

tsr_status tsr_import_floats(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                             float **out)
{
    uint64_t n = tsr_import_elements(e);
    void    *raw;
    TSR_TRY(tsr_import_bytes(im, e, &raw));
    float *v = tsr_new(n, sizeof *v);
    if (!v) {
        free(raw);
        return tsr_fail_nomem(im->err, n * sizeof *v, e->t->name);
    }
    const unsigned char *p = raw;
    if (strcmp(e->t->dtype_name, "F8_E4M3") == 0)
        for (uint64_t i = 0; i < n; i++)
            v[i] = tsr_import_fp8(p[i]);
    else if (e->t->dtype == TSR_U8)
        for (uint64_t i = 0; i < n; i++)
            v[i] = (float)p[i];
    else
        tsr_widen(v, raw, e->t->dtype, n);
    free(raw);
    for (uint64_t i = 0; i < n; i++) {
        if (isfinite(v[i]))
            continue;
        tsr_status st =
            tsr_import_fail(im, e,
                            "has %g at element %llu, which is not a scale; the file is damaged",
                            (double)v[i], (unsigned long long)i);
        free(v);
        return st;
    }
    *out = v;
    return TSR_OK;
}
