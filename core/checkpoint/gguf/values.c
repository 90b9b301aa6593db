/* The values of a GGUF file's metadata. */
#include "base/f16.h"
#include "checkpoint/gguf/gguf.h"
#include "tokenizer/internal.h"

#include <math.h>
#include <string.h>

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

/* False if the value is not an integer that fits a signed 64-bit. */
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
