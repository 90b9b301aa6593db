/* The type of the KV cache by layer, out of its text. */
#include "plugin/kv_layers.h"

#include "base/err.h"
#include "config/names.h"
#include "plugin/choices.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct item {
    const char *text;
    size_t      n;
    uint64_t    first, last;
    uint32_t    dtype;
};

static tsr_status bad(const struct item *at, const char *wanted, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT, "kv_layers: \"%.*s\": %s", (int)(at->n < 60 ? at->n : 60),
                    at->text, wanted);
}

static bool number(const char **p, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**p))
        return false;
    errno = 0;
    *out = strtoull(*p, &end, 10);
    *p = end;
    return errno == 0;
}

/* Bytes of the item at p: a comma ends it, unless the text after it is no layer but the next option of a codec. */
static size_t item_bytes(const char *p)
{
    size_t n = strcspn(p, ",");
    while (p[n] && p[n + 1] && !isdigit((unsigned char)p[n + 1]))
        n += 1 + strcspn(p + n + 1, ",");
    return n;
}

static bool read_type(const char *p, size_t n, struct item *i)
{
    char name[256];
    if (n >= sizeof name)
        return false;
    memcpy(name, p, n);
    name[n] = '\0';
    int64_t number = tsr_plugin_kv_number(name);
    i->dtype = (uint32_t)number;
    return number >= 0;
}

static tsr_status read_item(struct item *i, struct tsr_err *err)
{
    const char *p = i->text, *end = i->text + i->n;
    bool        read = number(&p, &i->first);
    i->last = i->first;
    if (read && *p == '-') {
        p++;
        read = number(&p, &i->last);
    }
    if (!read || *p != '=' || i->last < i->first)
        return bad(i, "wanted LAYER=TYPE or FIRST-LAST=TYPE, such as 0-1=f16", err);
    p++;
    if (read_type(p, (size_t)(end - p), i))
        return TSR_OK;
    return bad(i, "the type must be " TSR_KV_NAMES " or NAME:key=value of a codec", err);
}

/* An earlier item of the text that has a layer of i. */
static bool comes_twice(const char *text, const struct item *i)
{
    for (const char *p = text; p < i->text;) {
        struct item       one = { .text = p, .n = item_bytes(p) };
        struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
        if (read_item(&one, &ignored.err) == TSR_OK && one.first <= i->last && i->first <= one.last)
            return true;
        p += one.n + 1;
    }
    return false;
}

bool tsr_plugin_kv_layers_next(const char **text, uint32_t *kv)
{
    struct item       i = { .text = *text, .n = item_bytes(*text) };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (!**text || read_item(&i, &e.err) != TSR_OK)
        return false;
    *kv = i.dtype;
    *text += i.n + ((*text)[i.n] == ',');
    return true;
}

tsr_status tsr_plugin_kv_layers(const char *text, uint32_t kv, uint64_t layers, uint32_t *of,
                                struct tsr_err *err)
{
    for (uint64_t l = 0; of && l < layers; l++)
        of[l] = kv;
    for (const char *p = text; *text;) {
        struct item i = { .text = p, .n = item_bytes(p) };
        TSR_TRY(read_item(&i, err));
        if (i.last >= layers)
            return tsr_fail(err, TSR_E_INPUT,
                            "kv_layers: \"%.*s\": the last layer of the model is %llu",
                            (int)(i.n < 60 ? i.n : 60), i.text, (unsigned long long)layers - 1);
        if (comes_twice(text, &i))
            return bad(&i, "an item before it names the same layer", err);
        for (uint64_t l = i.first; of && l <= i.last; l++)
            of[l] = i.dtype;
        p += i.n;
        if (!*p)
            break;
        p++;
    }
    return TSR_OK;
}
