/* The header of a GGUF file: metadata and the list of tensors.  Everything in it is outside input. */
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 32u

/* A cursor in the header.  Past the end, `out` is set and reads return zeros. */
struct in {
    struct tsr_gguf     *g;
    const unsigned char *data;
    uint64_t             at, bytes, file_size;
    bool                 out;
    const char          *name;
    struct tsr_err      *err;
};

static const unsigned char *take(struct in *r, uint64_t n)
{
    if (r->out || n > r->bytes - r->at) {
        r->out = true;
        return NULL;
    }
    r->at += n;
    return r->data + r->at - n;
}

static uint64_t number(struct in *r, unsigned n)
{
    const unsigned char *p = take(r, n);
    uint64_t             v = 0;
    for (unsigned i = n; p && i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static bool more_in_file(const struct in *r)
{
    return r->bytes < r->file_size && r->bytes < TSR_GGUF_MAX_HEADER;
}

static tsr_status fail_short(const struct in *r, const char *what)
{
    if (r->bytes < r->file_size)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: the header is longer than the limit of %llu bytes", r->name,
                        (unsigned long long)TSR_GGUF_MAX_HEADER);
    return tsr_fail(r->err, TSR_E_INPUT, "%s: ends at byte %llu, inside %s; the file is cut off",
                    r->name, (unsigned long long)r->bytes, what);
}

/* A name with its NUL into the text of g, whose size is known to suffice. */
static tsr_status take_name(struct in *r, const char *what, uint64_t cap, uint64_t *text_at,
                            uint64_t *name_at)
{
    uint64_t start = r->at, len = number(r, 8);
    if (!r->out && (len == 0 || len > cap))
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: byte %llu: the name of %s has %llu bytes; 1 to %llu are allowed",
                        r->name, (unsigned long long)start, what, (unsigned long long)len,
                        (unsigned long long)cap);
    const unsigned char *p = take(r, len);
    if (!p)
        return TSR_OK;
    for (uint64_t i = 0; i < len; i++)
        if (p[i] < 0x20 || p[i] > 0x7e)
            return tsr_fail(r->err, TSR_E_INPUT,
                            "%s: byte %llu: the name of %s holds the byte 0x%02x, which is no "
                            "printable ASCII",
                            r->name, (unsigned long long)(start + 8 + i), what, p[i]);
    memcpy(r->g->text + *text_at, p, len);
    r->g->text[*text_at + len] = '\0';
    *name_at = *text_at;
    *text_at += len + 1;
    return TSR_OK;
}

static const unsigned char value_bytes[TSR_GGUF_VALUES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

static tsr_status skip_string(struct in *r, const char *key)
{
    uint64_t start = r->at, len = number(r, 8);
    if (!r->out && (len > TSR_GGUF_MAX_STRING || len > r->file_size - r->at))
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: byte %llu: a string of \"%.80s\" is said to have %llu bytes", r->name,
                        (unsigned long long)start, key, (unsigned long long)len);
    (void)take(r, len);
    return TSR_OK;
}

static tsr_status skip_values(struct in *r, const char *key, uint32_t type, uint64_t n)
{
    uint64_t left = r->file_size - r->at, each = type == TSR_GGUF_STRING ? 8 : value_bytes[type];
    if (n > left / each)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: byte %llu: \"%.80s\" is said to have %llu items, more than fit into "
                        "the file; it is damaged or cut off",
                        r->name, (unsigned long long)r->at, key, (unsigned long long)n);
    if (type != TSR_GGUF_STRING) {
        (void)take(r, n * each);
        return TSR_OK;
    }
    for (uint64_t i = 0; i < n && !r->out; i++)
        TSR_TRY(skip_string(r, key));
    return TSR_OK;
}

static tsr_status read_key(struct in *r, struct tsr_gguf_key *k, uint64_t *text_at)
{
    uint64_t name_at = 0, start;
    TSR_TRY(take_name(r, "a key", TSR_GGUF_MAX_KEY, text_at, &name_at));
    if (r->out)
        return TSR_OK;
    k->name = r->g->text + name_at;
    start = r->at;
    k->type = (uint32_t)number(r, 4);
    k->n = 1;
    if (k->type == TSR_GGUF_ARRAY) {
        k->item = (uint32_t)number(r, 4);
        k->n = number(r, 8);
    }
    uint32_t type = k->type == TSR_GGUF_ARRAY ? k->item : k->type;
    if (r->out)
        return TSR_OK;
    if (type >= TSR_GGUF_VALUES || type == TSR_GGUF_ARRAY)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: byte %llu: \"%.80s\" has %s of type %u, which GGUF does not have",
                        r->name, (unsigned long long)start, k->name,
                        k->type == TSR_GGUF_ARRAY ? "items" : "a value", type);
    k->at = r->at;
    TSR_TRY(skip_values(r, k->name, type, k->n));
    k->bytes = r->at - k->at;
    return TSR_OK;
}

static tsr_status check_type(struct in *r, struct tsr_gguf_tensor *t)
{
    char     buf[16];
    uint32_t elements, bytes;
    uint64_t n = 1;
    if (!tsr_gguf_block(t->type, &elements, &bytes))
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: tensor \"%s\" is stored as %s, which is not read; F32, F16, BF16, "
                        "Q8_0, Q4_0 to Q5_1, Q2_K to Q6_K, IQ1 to IQ4, TQ1_0, TQ2_0 and MXFP4 are",
                        r->name, t->name, tsr_gguf_type_name(t->type, buf));
    if (t->dims[0] % elements != 0)
        return tsr_fail(
            r->err, TSR_E_INPUT,
            "%s: tensor \"%s\" has rows of %llu, which is not a multiple of the %u of a "
            "block of %s",
            r->name, t->name, (unsigned long long)t->dims[0], elements,
            tsr_gguf_type_name(t->type, buf));
    for (uint32_t d = 0; d < t->rank; d++)
        if (t->dims[d] == 0 || !tsr_mul(n, t->dims[d], &n) || n > (uint64_t)INT64_MAX / 8)
            return tsr_fail(r->err, TSR_E_INPUT,
                            "%s: tensor \"%s\" has a size of %llu in dimension %u, which cannot be",
                            r->name, t->name, (unsigned long long)t->dims[d], d);
    t->bytes = n / elements * bytes;
    return TSR_OK;
}

static tsr_status read_tensor(struct in *r, struct tsr_gguf_tensor *t, uint64_t *text_at)
{
    uint64_t name_at = 0, start;
    TSR_TRY(take_name(r, "a tensor", TSR_GGUF_MAX_NAME, text_at, &name_at));
    if (r->out)
        return TSR_OK;
    t->name = r->g->text + name_at;
    start = r->at;
    t->rank = (uint32_t)number(r, 4);
    if (!r->out && (t->rank == 0 || t->rank > TSR_GGUF_MAX_RANK))
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: byte %llu: tensor \"%s\" has %u dimensions; 1 to 4 are allowed",
                        r->name, (unsigned long long)start, t->name, t->rank);
    for (uint32_t d = 0; d < t->rank && !r->out; d++)
        t->dims[d] = number(r, 8);
    t->type = (uint32_t)number(r, 4);
    t->at = number(r, 8);
    return r->out ? TSR_OK : check_type(r, t);
}

/* Tensors are contiguous, each at an aligned offset, as ggml writes and requires. */
static tsr_status place(struct in *r)
{
    int64_t  alignment = ALIGNMENT;
    uint64_t start, want = 0;
    TSR_TRY(tsr_gguf_int(r->g, "general.alignment", false, 1, 1 << 20, &alignment, r->err));
    if ((alignment & (alignment - 1)) != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: \"general.alignment\" is %lld, which is not a power of two", r->name,
                        (long long)alignment);
    uint64_t mask = (uint64_t)alignment - 1;
    start = (r->at + mask) & ~mask;
    for (uint64_t i = 0; i < r->g->n; i++) {
        struct tsr_gguf_tensor *t = &r->g->tensors[i];
        if (t->at != want)
            return tsr_fail(r->err, TSR_E_INPUT,
                            "%s: tensor \"%s\" is said to start at byte %llu of the data, where "
                            "byte %llu is wanted",
                            r->name, t->name, (unsigned long long)t->at, (unsigned long long)want);
        uint64_t end;
        if (!tsr_add(start, want, &t->at) || !tsr_add(t->at, t->bytes, &end) || end > r->file_size)
            return tsr_fail(r->err, TSR_E_INPUT,
                            "%s: ends at byte %llu, inside tensor \"%s\"; the file is cut off",
                            r->name, (unsigned long long)r->file_size, t->name);
        want = (end - start + mask) & ~mask;
    }
    if (r->file_size > start && r->file_size - start > want) /* writers pad the last one, or not */
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: %llu bytes follow the last tensor; the file is damaged, fetch "
                        "it again",
                        r->name, (unsigned long long)(r->file_size - start - want));
    return TSR_OK;
}

static int tensor_by_name(const void *a, const void *b)
{
    return strcmp((*(struct tsr_gguf_tensor *const *)a)->name,
                  (*(struct tsr_gguf_tensor *const *)b)->name);
}

static int key_by_name(const void *a, const void *b)
{
    return strcmp((*(struct tsr_gguf_key *const *)a)->name,
                  (*(struct tsr_gguf_key *const *)b)->name);
}

static tsr_status sort_tensors(struct in *r)
{
    struct tsr_gguf *g = r->g;
    g->by_name = tsr_new(g->n, sizeof *g->by_name);
    if (!g->by_name)
        return tsr_fail_nomem(r->err, g->n * sizeof *g->by_name, r->name);
    for (uint64_t i = 0; i < g->n; i++)
        g->by_name[i] = &g->tensors[i];
    if (g->n)
        qsort(g->by_name, g->n, sizeof(struct tsr_gguf_tensor *), tensor_by_name);
    for (uint64_t i = 1; i < g->n; i++)
        if (strcmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: tensor \"%s\" is there twice", r->name,
                            g->by_name[i]->name);
    return TSR_OK;
}

static tsr_status sort_keys(struct in *r)
{
    struct tsr_gguf *g = r->g;
    g->key_by_name = tsr_new(g->n_keys, sizeof *g->key_by_name);
    if (!g->key_by_name)
        return tsr_fail_nomem(r->err, g->n_keys * sizeof *g->key_by_name, r->name);
    for (uint64_t i = 0; i < g->n_keys; i++)
        g->key_by_name[i] = &g->keys[i];
    if (g->n_keys)
        qsort(g->key_by_name, g->n_keys, sizeof(struct tsr_gguf_key *), key_by_name);
    for (uint64_t i = 1; i < g->n_keys; i++)
        if (strcmp(g->key_by_name[i - 1]->name, g->key_by_name[i]->name) == 0)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: the key \"%.80s\" is there twice", r->name,
                            g->key_by_name[i]->name);
    return TSR_OK;
}

static tsr_status read_start(struct in *r)
{
    const unsigned char *magic = take(r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: does not start with \"GGUF\"", r->name);
    uint32_t version = (uint32_t)number(r, 4);
    if (r->out)
        return fail_short(r, "the version");
    if ((version & 0xffffu) == 0 && version != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: is a big-endian GGUF file; only little-endian ones are read, which "
                        "gguf_convert_endian.py of llama.cpp makes",
                        r->name);
    if (version != 3)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: is GGUF version %u; only version 3 is read, which a conversion by "
                        "today's llama.cpp writes",
                        r->name, version);
    r->g->n = number(r, 8);
    r->g->n_keys = number(r, 8);
    if (r->out)
        return fail_short(r, "the header");
    /* a key takes at least 13 bytes, a tensor 33 */
    if (r->g->n_keys > r->file_size / 13 || r->g->n > r->file_size / 33 ||
        r->g->n_keys * 13 + r->g->n * 33 > r->file_size)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: is said to have %llu tensors and %llu keys, more than fit into its "
                        "%llu bytes",
                        r->name, (unsigned long long)r->g->n, (unsigned long long)r->g->n_keys,
                        (unsigned long long)r->file_size);
    if (r->g->n > TSR_GGUF_MAX_TENSORS || r->g->n_keys > TSR_GGUF_MAX_KEYS)
        return tsr_fail(
            r->err, TSR_E_NOMEM,
            "%s: has %llu tensors and %llu keys; %u and %u are the most that a file may have here",
            r->name, (unsigned long long)r->g->n, (unsigned long long)r->g->n_keys,
            TSR_GGUF_MAX_TENSORS, TSR_GGUF_MAX_KEYS);
    return TSR_OK;
}

/* Names are copied from the header, so its size is enough for them with their NULs: each has an
 * 8-byte length in front. */
static tsr_status make_room(struct in *r)
{
    struct tsr_gguf *g = r->g;
    g->keys = tsr_new(g->n_keys, sizeof *g->keys);
    g->tensors = tsr_new(g->n, sizeof *g->tensors);
    g->text = tsr_new(r->bytes, 1);
    return g->keys && g->tensors && g->text ? TSR_OK
                                            : tsr_fail_nomem(r->err, r->bytes, "a GGUF header");
}

static tsr_status parse(struct in *r, bool *more)
{
    struct tsr_gguf *g = r->g;
    uint64_t         text_at = 0;
    TSR_TRY(read_start(r));
    TSR_TRY(make_room(r));
    for (uint64_t i = 0; i < g->n_keys && !r->out; i++)
        TSR_TRY(read_key(r, &g->keys[i], &text_at));
    bool keys_whole = !r->out;
    for (uint64_t i = 0; i < g->n && !r->out; i++)
        TSR_TRY(read_tensor(r, &g->tensors[i], &text_at));
    if (r->out && more_in_file(r)) {
        *more = true;
        return TSR_OK;
    }
    if (r->out)
        return fail_short(r, keys_whole ? "the list of tensors" : "the metadata");
    g->header_bytes = r->at;
    TSR_TRY(sort_keys(r));
    TSR_TRY(sort_tensors(r));
    return place(r);
}

tsr_status tsr_gguf_parse(struct tsr_gguf *g, const char *name, const unsigned char *data,
                          uint64_t bytes, uint64_t file_size, bool *more, struct tsr_err *err)
{
    memset(g, 0, sizeof *g);
    g->file.fd = -1;
    *more = false;
    struct in r = { .g = g,
                    .data = data,
                    .bytes = bytes < file_size ? bytes : file_size,
                    .file_size = file_size,
                    .name = name,
                    .err = err };
    g->path = tsr_strdup(name);
    if (!g->path)
        return tsr_fail_nomem(err, strlen(name), name);
    /* values are read while the list is placed, and while the file is open */
    g->header = data;
    return parse(&r, more);
}
