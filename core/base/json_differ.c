#include "base/json_differ.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 32u
#define NAME  400u
#define VALUE 64u

void tsr_differences_say(struct tsr_differences *d, const char *name, const char *old,
                         const char *now)
{
    char   one[NAME + 2 * VALUE + 16];
    size_t at = strlen(d->text);
    int    n = snprintf(one, sizeof one, "%s%.300s: %s => %s", at ? "; " : "", name, old, now);
    d->n++;
    if (d->left || n < 0 || at + (size_t)n + 24 > sizeof d->text)
        d->left++;
    else
        memcpy(d->text + at, one, (size_t)n + 1);
}

const char *tsr_differences_text(struct tsr_differences *d)
{
    size_t at = strlen(d->text);
    if (d->left && at < sizeof d->text)
        (void)snprintf(d->text + at, sizeof d->text - at, "%s%u more", at ? "; and " : "", d->left);
    d->left = 0;
    return d->text;
}

static void print(const json_t *j, char text[VALUE])
{
    char    *all = NULL;
    uint64_t bytes;
    if (j)
        (void)tsr_json_text(j,
                            JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS |
                                JSON_REAL_PRECISION(9),
                            &all, &bytes, NULL);
    const char *v = all ? all : j ? "?" : "absent";
    size_t      n = strlen(v);
    if (n >= VALUE) { /* at the start of a character */
        n = VALUE - 4;
        while (n > 0 && ((unsigned char)v[n] & 0xc0) == 0x80)
            n--;
        (void)snprintf(text, VALUE, "%.*s...", (int)n, v);
    } else {
        memcpy(text, v, n + 1);
    }
    free(all);
}

static bool has_ids(const json_t *list)
{
    json_t *one;
    size_t  i;
    json_array_foreach ((json_t *)(uintptr_t)list, i, one)
        if (!json_is_string(json_object_get(one, "id")))
            return false;
    return json_is_array(list);
}

/* A list as an object: by ids, or by numbers.  NULL: out of memory. */
static json_t *keyed(const json_t *list, bool ids)
{
    json_t *o = json_object(), *one;
    size_t  i;
    bool    ok = o != NULL;
    json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
        char number[24];
        (void)snprintf(number, sizeof number, "%zu", i + 1);
        const char *key = ids ? json_string_value(json_object_get(one, "id")) : number;
        ok = ok && json_object_set(o, key, one) == 0;
    }
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static void differ(struct tsr_differences *d, const char *name, const json_t *a, const json_t *b,
                   unsigned depth);

static void member_name(char out[NAME], const char *name, const char *key, bool item)
{
    if (strcmp(name, "options") == 0 || *name == '\0')
        (void)snprintf(out, NAME, "%.300s", key);
    else if (item &&
             strcmp(name, "pipeline") == 0) /* quantize.bits, not pipeline[1].quantize.bits */
        out[0] = '\0';
    else if (item)
        (void)snprintf(out, NAME, "%.250s[%.80s]", name, key);
    else
        (void)snprintf(out, NAME, "%.250s.%.80s", name, key);
}

static void members(struct tsr_differences *d, const char *name, const json_t *a, const json_t *b,
                    bool items, unsigned depth)
{
    char        below[NAME];
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)a, key, v) {
        member_name(below, name, key, items);
        differ(d, below, v, json_object_get(b, key), depth + 1);
    }
    json_object_foreach ((json_t *)(uintptr_t)b, key, v) {
        if (json_object_get(a, key))
            continue;
        member_name(below, name, key, items);
        differ(d, below, NULL, v, depth + 1);
    }
}

static void differ(struct tsr_differences *d, const char *name, const json_t *a, const json_t *b,
                   unsigned depth)
{
    char    old[VALUE], now[VALUE];
    json_t *x = NULL, *y = NULL;
    if (a == b || json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b))
        return;
    unsigned before = d->n;
    if (depth < DEPTH && json_is_object(a) && json_is_object(b)) {
        members(d, name, a, b, false, depth);
        return;
    }
    bool ids = has_ids(a) && has_ids(b);
    bool alike = json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b);
    /* a list of plain values is one value */
    bool deep = ids || (alike && json_is_object(json_array_get(a, 0)));
    if (depth < DEPTH && deep) {
        x = keyed(a, ids);
        y = keyed(b, ids);
    }
    if (x && y)
        members(d, name, x, y, true, depth);
    if (d->n == before) { /* also of lists in another order */
        print(a, old);
        print(b, now);
        tsr_differences_say(d, *name ? name : "the whole", old, now);
    }
    json_decref(x);
    json_decref(y);
}

void tsr_differences_add(struct tsr_differences *d, const char *name, const json_t *old,
                         const json_t *now)
{
    differ(d, name, old, now, 0);
}
