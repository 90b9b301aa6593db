/* A GGUF file: opening it, and the values of its metadata. */
#include "base/f16.h"
#include "base/mem.h"
#include "model/gguf.h"
#include "model/tok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_READ (UINT64_C(1) << 20)

bool tsr_gguf_is(const char *path)
{
    return tsr_file_begins(path, "GGUF", 4);
}

void tsr_gguf_close(struct tsr_gguf *g)
{
    if (g->file.fd >= 0)
        tsr_file_close(&g->file);
    free(g->keys);
    free(g->tensors);
    free((void *)g->by_name);
    free((void *)g->key_by_name);
    free(g->text);
    free(g->path);
    free(g->owned);
    memset(g, 0, sizeof *g);
    g->file.fd = -1;
}

static tsr_status read_header(struct tsr_gguf *g, const struct tsr_file *f, struct tsr_err *err)
{
    bool more = true;
    for (uint64_t n = FIRST_READ; more; n *= 4) {
        uint64_t       bytes = n < f->size ? n : f->size;
        unsigned char *data = tsr_new(bytes, 1);
        if (!data)
            return tsr_fail_nomem(err, bytes, f->path);
        tsr_status st = tsr_file_read(f, 0, data, bytes, err);
        if (st == TSR_OK)
            st = tsr_gguf_parse(g, f->path, data, bytes, f->size, &more, err);
        g->owned = data;
        if (st != TSR_OK || more)
            tsr_gguf_close(g);
        TSR_TRY(st);
    }
    return TSR_OK;
}

/* One of several files, by its metadata. */
static tsr_status refuse_split(const struct tsr_gguf *g, struct tsr_err *err)
{
    int64_t count = 1;
    TSR_TRY(tsr_gguf_int(g, "split.count", false, 0, 65535, &count, err));
    if (count > 1)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: is one of %lld parts of a split model; join them first (llama-gguf-split "
            "--merge)",
            g->path, (long long)count);
    return TSR_OK;
}

tsr_status tsr_gguf_open(struct tsr_gguf *g, const char *path, struct tsr_err *err)
{
    struct tsr_file f;
    memset(g, 0, sizeof *g);
    g->file.fd = -1;
    TSR_TRY(tsr_file_open(&f, path, err));
    tsr_status st = read_header(g, &f, err);
    if (st == TSR_OK)
        st = tsr_file_unchanged(&f, err);
    if (st == TSR_OK)
        st = refuse_split(g, err);
    if (st != TSR_OK) {
        tsr_file_close(&f);
        tsr_gguf_close(g);
        return st;
    }
    g->file = f;
    return TSR_OK;
}

const struct tsr_gguf_tensor *tsr_gguf_find(const struct tsr_gguf *g, const char *name)
{
    uint64_t lo = 0, hi = g->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int      c = strcmp(name, g->by_name[mid]->name);
        if (c == 0)
            return g->by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const struct tsr_gguf_key *tsr_gguf_key(const struct tsr_gguf *g, const char *name)
{
    uint64_t lo = 0, hi = g->n_keys;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int      c = strcmp(name, g->key_by_name[mid]->name);
        if (c == 0)
            return g->key_by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* ---- values -------------------------------------------------------------------- */

static uint64_t number(const unsigned char *p, unsigned n)
{
    uint64_t v = 0;
    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

static tsr_status absent(const struct tsr_gguf *g, const char *key, bool required,
                         struct tsr_err *err)
{
    return required ? tsr_fail(err, TSR_E_INPUT, "%s: the key \"%s\" is missing", g->path, key)
                    : TSR_OK;
}

/* False for what is no integer, or none of 64 bits with a sign. */
static bool integer(const struct tsr_gguf *g, const struct tsr_gguf_key *k, int64_t *v)
{
    const unsigned char *p = g->header + k->at;
    switch (k->type) {
    case TSR_GGUF_U8:
        *v = p[0];
        return true;
    case TSR_GGUF_I8:
        *v = p[0] < 128 ? (int64_t)p[0] : (int64_t)p[0] - 256;
        return true;
    case TSR_GGUF_U16:
        *v = (int64_t)number(p, 2);
        return true;
    case TSR_GGUF_I16:
        *v = (int16_t)(uint16_t)number(p, 2);
        return true;
    case TSR_GGUF_U32:
        *v = (int64_t)number(p, 4);
        return true;
    case TSR_GGUF_I32:
        *v = (int32_t)(uint32_t)number(p, 4);
        return true;
    case TSR_GGUF_U64:
    case TSR_GGUF_I64:
        *v = (int64_t)number(p, 8);
        return k->type == TSR_GGUF_I64 || *v >= 0;
    default:
        return false;
    }
}

tsr_status tsr_gguf_int(const struct tsr_gguf *g, const char *key, bool required, int64_t lo,
                        int64_t hi, int64_t *v, struct tsr_err *err)
{
    const struct tsr_gguf_key *k = tsr_gguf_key(g, key);
    int64_t                    i;
    if (!k)
        return absent(g, key, required, err);
    if (!integer(g, k, &i) || i < lo || i > hi)
        return tsr_fail(err, TSR_E_INPUT, "%s: the key \"%s\" is not an integer from %lld to %lld",
                        g->path, key, (long long)lo, (long long)hi);
    *v = i;
    return TSR_OK;
}

tsr_status tsr_gguf_real(const struct tsr_gguf *g, const char *key, bool required, double lo,
                         double hi, double *v, struct tsr_err *err)
{
    const struct tsr_gguf_key *k = tsr_gguf_key(g, key);
    double                     d = (double)NAN;
    int64_t                    i;
    if (!k)
        return absent(g, key, required, err);
    if (k->type == TSR_GGUF_F32) {
        d = (double)tsr_bits_f32((uint32_t)number(g->header + k->at, 4));
    } else if (k->type == TSR_GGUF_F64) {
        uint64_t u = number(g->header + k->at, 8);
        memcpy(&d, &u, sizeof d);
    } else if (integer(g, k, &i)) {
        d = (double)i;
    }
    if (!(d >= lo && d <= hi))
        return tsr_fail(err, TSR_E_INPUT, "%s: the key \"%s\" is not a number from %g to %g",
                        g->path, key, lo, hi);
    *v = d;
    return TSR_OK;
}

tsr_status tsr_gguf_bool(const struct tsr_gguf *g, const char *key, bool *v, struct tsr_err *err)
{
    const struct tsr_gguf_key *k = tsr_gguf_key(g, key);
    if (!k)
        return TSR_OK;
    if (k->type != TSR_GGUF_BOOL || g->header[k->at] > 1)
        return tsr_fail(err, TSR_E_INPUT, "%s: the key \"%s\" is not a truth value", g->path, key);
    *v = g->header[k->at] == 1;
    return TSR_OK;
}

tsr_status tsr_gguf_str(const struct tsr_gguf *g, const char *key, bool required, char **v,
                        struct tsr_err *err)
{
    const struct tsr_gguf_key *k = tsr_gguf_key(g, key);
    if (!k)
        return absent(g, key, required, err);
    const char *s = (const char *)g->header + k->at + 8;
    if (k->type != TSR_GGUF_STRING || memchr(s, 0, k->bytes - 8) || !tok_valid(s, k->bytes - 8))
        return tsr_fail(err, TSR_E_INPUT, "%s: the key \"%s\" is not a string of UTF-8", g->path,
                        key);
    *v = tsr_strndup(s, k->bytes - 8);
    return *v ? TSR_OK : tsr_fail_nomem(err, k->bytes, key);
}

tsr_status tsr_gguf_array(const struct tsr_gguf *g, const char *key, bool required, uint32_t item,
                          const struct tsr_gguf_key **k, struct tsr_err *err)
{
    static const char *const   names[TSR_GGUF_VALUES] = { [TSR_GGUF_I32] = "32-bit integers",
                                                          [TSR_GGUF_F32] = "32-bit floats",
                                                          [TSR_GGUF_STRING] = "strings" };
    const struct tsr_gguf_key *a = tsr_gguf_key(g, key);
    *k = NULL;
    if (!a)
        return absent(g, key, required, err);
    if (a->type != TSR_GGUF_ARRAY || a->item != item)
        return tsr_fail(err, TSR_E_INPUT, "%s: the key \"%s\" is not an array of %s", g->path, key,
                        names[item] ? names[item] : "the type that it should have");
    *k = a;
    return TSR_OK;
}

void tsr_gguf_next(const struct tsr_gguf *g, const struct tsr_gguf_key *k, uint64_t *at,
                   const char **s, uint64_t *len)
{
    const unsigned char *p = g->header + k->at + *at;
    *len = number(p, 8);
    *s = (const char *)p + 8;
    *at += 8 + *len;
}

uint32_t tsr_gguf_item32(const struct tsr_gguf *g, const struct tsr_gguf_key *k, uint64_t i)
{
    return (uint32_t)number(g->header + k->at + 4 * i, 4);
}
