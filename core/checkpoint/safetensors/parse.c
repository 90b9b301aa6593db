/* The safetensors header: 8 bytes of length, then JSON, then the data section. */
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/safetensors/scan.h"

#include <stdlib.h>
#include <string.h>

// clang-format off
static const struct {
    const char *name;
    uint32_t    dtype, bits;
} dtypes[] = {
    { "F32", TSR_F32, 32 },   { "F16", TSR_F16, 16 },   { "BF16", TSR_BF16, 16 },
    { "U8", TSR_U8, 8 },      { "I8", TSR_I8, 8 },      { "U32", TSR_U32, 32 },
    { "BOOL", 0, 8 },         { "I16", 0, 16 },         { "U16", 0, 16 },
    { "I32", 0, 32 },         { "F64", 0, 64 },         { "I64", 0, 64 },
    { "U64", 0, 64 },         { "C64", 0, 64 },         { "F8_E4M3", 0, 8 },
    { "F8_E5M2", 0, 8 },      { "F8_E8M0", 0, 8 },      { "F8_E4M3FNUZ", 0, 8 },
    { "F8_E5M2FNUZ", 0, 8 },  { "F6_E2M3", 0, 6 },      { "F6_E3M2", 0, 6 },
    { "F4", 0, 4 },
};
// clang-format on

/* "FILE: tensor "NAME": ..." followed by our message. */
#define TENSOR_FAIL(s, t, fmt, ...)                                                                \
    tsr_fail((s)->err, TSR_E_INPUT, "%s: tensor \"%.200s\": " fmt, (s)->file, (t)->name,           \
             __VA_ARGS__)

static tsr_status parse_dtype(struct tsr_checkpoint_scan *s, struct tsr_safetensors_tensor *t,
                              uint32_t *bits)
{
    const char *v;
    uint64_t    n;
    TSR_TRY(tsr_checkpoint_scan_string(s, &v, &n));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(v, dtypes[i].name) == 0) {
            memcpy(t->dtype_name, v, n + 1);
            t->dtype = dtypes[i].dtype;
            *bits = dtypes[i].bits;
            return TSR_OK;
        }
    }
    return TENSOR_FAIL(s, t, "unknown dtype \"%.40s\"", v);
}

static tsr_status parse_shape(struct tsr_checkpoint_scan *s, struct tsr_safetensors_tensor *t)
{
    TSR_TRY(tsr_checkpoint_scan_char(s, '[', "shape: an array was expected"));
    if (tsr_checkpoint_scan_if(s, ']'))
        return TSR_OK;
    do {
        if (t->rank == TSR_ST_MAX_RANK)
            return TENSOR_FAIL(s, t, "more than %d dimensions", TSR_ST_MAX_RANK);
        tsr_status st = tsr_checkpoint_scan_u64(s, &t->shape[t->rank]);
        if (st != TSR_OK)
            return tsr_err_prefix(s->err, st, "tensor \"%.200s\", dimension %u", t->name, t->rank);
        t->rank++;
    } while (tsr_checkpoint_scan_if(s, ','));
    return tsr_checkpoint_scan_char(s, ']', "shape: ',' or ']' was expected");
}

static tsr_status parse_offsets(struct tsr_checkpoint_scan *s, struct tsr_safetensors_tensor *t)
{
    TSR_TRY(tsr_checkpoint_scan_char(s, '[', "data_offsets: an array was expected"));
    TSR_TRY(tsr_checkpoint_scan_u64(s, &t->begin));
    TSR_TRY(tsr_checkpoint_scan_char(s, ',', "data_offsets: two numbers were expected"));
    TSR_TRY(tsr_checkpoint_scan_u64(s, &t->end));
    return tsr_checkpoint_scan_char(s, ']', "data_offsets: two numbers were expected");
}

/* end - begin must be what shape and dtype say, to the byte. */
static tsr_status check_size(struct tsr_checkpoint_scan *s, const struct tsr_safetensors_tensor *t,
                             uint32_t bits)
{
    if (t->begin > t->end)
        return TENSOR_FAIL(s, t, "data_offsets end before they begin: [%llu, %llu]",
                           (unsigned long long)t->begin, (unsigned long long)t->end);
    uint64_t n = 1, total;
    bool     empty = false;
    for (uint32_t d = 0; d < t->rank; d++) {
        if (t->shape[d] == 0)
            empty = true;
        else if (!tsr_mul(n, t->shape[d], &n))
            return TENSOR_FAIL(s, t, "the shape has more than 2^64 elements at dimension %u", d);
    }
    if (!tsr_mul(n, bits, &total))
        return TENSOR_FAIL(s, t, "the shape has more than 2^64 bits%s", "");
    if (empty)
        total = 0;
    if (total % 8 != 0)
        return TENSOR_FAIL(s, t, "%llu elements of %s do not fill whole bytes",
                           (unsigned long long)n, t->dtype_name);
    if (t->end - t->begin != total / 8)
        return TENSOR_FAIL(s, t, "shape and dtype need %llu bytes, data_offsets give %llu",
                           (unsigned long long)(total / 8),
                           (unsigned long long)(t->end - t->begin));
    return TSR_OK;
}

static tsr_status parse_tensor(struct tsr_checkpoint_scan *s, struct tsr_safetensors_tensor *t)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    unsigned    seen = 0;
    uint32_t    bits = 0;
    char *const kept = s->text; /* words that describe a tensor are not kept */
    TSR_TRY(tsr_checkpoint_scan_char(s, '{', "an object that describes a tensor was expected"));
    if (!tsr_checkpoint_scan_if(s, '}')) {
        do {
            const char *key;
            uint64_t    n;
            TSR_TRY(tsr_checkpoint_scan_string(s, &key, &n));
            TSR_TRY(tsr_checkpoint_scan_char(s, ':', "':' was expected"));
            unsigned what = strcmp(key, "dtype") == 0          ? DTYPE
                            : strcmp(key, "shape") == 0        ? SHAPE
                            : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                               : 0;
            if (what == 0)
                return TENSOR_FAIL(s, t, "unknown key \"%.40s\"", key);
            if (seen & what)
                return TENSOR_FAIL(s, t, "key \"%s\" is there twice", key);
            seen |= what;
            TSR_TRY(what == DTYPE   ? parse_dtype(s, t, &bits)
                    : what == SHAPE ? parse_shape(s, t)
                                    : parse_offsets(s, t));
        } while (tsr_checkpoint_scan_if(s, ','));
        TSR_TRY(tsr_checkpoint_scan_char(s, '}', "',' or '}' was expected"));
    }
    if (seen != ALL)
        return TENSOR_FAIL(s, t, "\"%s\" is missing",
                           !(seen & DTYPE)   ? "dtype"
                           : !(seen & SHAPE) ? "shape"
                                             : "data_offsets");
    s->text = kept;
    return check_size(s, t, bits);
}

/* Room for one more in a growing array. */
static tsr_status grow(void **v, uint64_t n, uint64_t *cap, uint64_t size, struct tsr_err *err)
{
    if (n < *cap)
        return TSR_OK;
    uint64_t want = *cap ? *cap * 2 : 64;
    void    *p = tsr_renew(*v, want, size);
    if (!p)
        return tsr_fail_nomem(err, want * size, "a safetensors header");
    *v = p;
    *cap = want;
    return TSR_OK;
}

struct pair {
    char *key, *value;
};

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->key, ((const struct pair *)b)->key);
}

static tsr_status parse_pairs(struct tsr_checkpoint_scan *s, struct pair **pairs, uint64_t *n)
{
    uint64_t cap = 0, len;
    TSR_TRY(tsr_checkpoint_scan_char(s, '{', "__metadata__: an object was expected"));
    if (tsr_checkpoint_scan_if(s, '}'))
        return TSR_OK;
    do {
        if (*n == TSR_ST_MAX_META)
            return tsr_checkpoint_scan_fail(s, "__metadata__ has too many entries");
        TSR_TRY(grow((void **)pairs, *n, &cap, sizeof **pairs, s->err));
        const char *key, *value;
        TSR_TRY(tsr_checkpoint_scan_string(s, &key, &len));
        TSR_TRY(tsr_checkpoint_scan_char(s, ':', "':' was expected"));
        tsr_status st = tsr_checkpoint_scan_string(s, &value, &len);
        if (st != TSR_OK)
            return tsr_err_prefix(s->err, st, "__metadata__ key \"%.100s\"", key);
        (*pairs)[*n] = (struct pair){ (char *)(uintptr_t)key, (char *)(uintptr_t)value };
        ++*n;
    } while (tsr_checkpoint_scan_if(s, ','));
    return tsr_checkpoint_scan_char(s, '}', "__metadata__: ',' or '}' was expected");
}

static tsr_status keep_pairs(struct tsr_checkpoint_scan *s, struct tsr_safetensors *st,
                             struct pair *pairs, uint64_t n)
{
    if (n == 0)
        return TSR_OK;
    qsort(pairs, n, sizeof *pairs, by_key);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(pairs[i - 1].key, pairs[i].key) == 0)
            return tsr_fail(s->err, TSR_E_INPUT, "%s: __metadata__ key \"%.100s\" is there twice",
                            s->file, pairs[i].key);
    st->meta_keys = tsr_new(n, sizeof *st->meta_keys);
    st->meta_values = tsr_new(n, sizeof *st->meta_values);
    if (!st->meta_keys || !st->meta_values)
        return tsr_fail_nomem(s->err, n * 16, "__metadata__");
    for (uint64_t i = 0; i < n; i++) {
        st->meta_keys[i] = pairs[i].key;
        st->meta_values[i] = pairs[i].value;
    }
    st->n_meta = n;
    return TSR_OK;
}

static tsr_status parse_metadata(struct tsr_checkpoint_scan *s, struct tsr_safetensors *st)
{
    struct pair *pairs = NULL;
    uint64_t     n = 0;
    tsr_status   r = parse_pairs(s, &pairs, &n);
    if (r == TSR_OK)
        r = keep_pairs(s, st, pairs, n);
    free(pairs);
    return r;
}

static tsr_status check_name(struct tsr_checkpoint_scan *s, const char *name, uint64_t n)
{
    if (n == 0 || n > TSR_ST_MAX_NAME)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: header byte %llu: a tensor name of %llu bytes; 1 to %u are allowed",
                        s->file, (unsigned long long)(s->p - s->begin), (unsigned long long)n,
                        TSR_ST_MAX_NAME);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return tsr_checkpoint_scan_fail(s, "control character in a tensor name");
    return TSR_OK;
}

static tsr_status parse_members(struct tsr_checkpoint_scan *s, struct tsr_safetensors *st)
{
    uint64_t cap = 0, n;
    bool     meta = false;
    if (s->p == s->end || *s->p != '{')
        return tsr_checkpoint_scan_fail(s, "the header does not start with '{'");
    s->p++;
    if (tsr_checkpoint_scan_if(s, '}'))
        return TSR_OK;
    do {
        const char *name;
        TSR_TRY(tsr_checkpoint_scan_string(s, &name, &n));
        TSR_TRY(check_name(s, name, n));
        TSR_TRY(tsr_checkpoint_scan_char(s, ':', "':' was expected"));
        if (strcmp(name, "__metadata__") == 0) {
            if (meta)
                return tsr_checkpoint_scan_fail(s, "__metadata__ is there twice");
            meta = true;
            TSR_TRY(parse_metadata(s, st));
            continue;
        }
        if (st->n == TSR_ST_MAX_TENSORS)
            return tsr_fail(s->err, TSR_E_NOMEM,
                            "%s: lists more than %u tensors, the most that one file may have here; "
                            "split it into shards",
                            s->file, TSR_ST_MAX_TENSORS);
        TSR_TRY(grow((void **)&st->tensors, st->n, &cap, sizeof *st->tensors, s->err));
        struct tsr_safetensors_tensor *t = &st->tensors[st->n];
        memset(t, 0, sizeof *t);
        t->name = name;
        TSR_TRY(parse_tensor(s, t));
        st->n++;
    } while (tsr_checkpoint_scan_if(s, ','));
    return tsr_checkpoint_scan_char(s, '}', "',' or '}' was expected");
}

static int by_place(const void *a, const void *b)
{
    const struct tsr_safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tsr_safetensors_tensor *)a)->name,
                  ((const struct tsr_safetensors_tensor *)b)->name);
}

/* The tensors, in order of place, must follow on each other and fill the data section. */
static tsr_status check_cover(struct tsr_checkpoint_scan *s, struct tsr_safetensors *st,
                              uint64_t section)
{
    uint64_t at = 0;
    if (st->n)
        qsort(st->tensors, st->n, sizeof *st->tensors, by_place);
    for (uint64_t i = 0; i < st->n; i++) {
        const struct tsr_safetensors_tensor *t = &st->tensors[i];
        if (t->end > section)
            return TENSOR_FAIL(s, t,
                               "its data end at byte %llu of a data section of %llu; the file is "
                               "cut off or damaged, fetch it again",
                               (unsigned long long)t->end, (unsigned long long)section);
        if (t->begin != at)
            return TENSOR_FAIL(s, t,
                               "its data begin at byte %llu, %s the tensor before ends at %llu",
                               (unsigned long long)t->begin,
                               t->begin < at ? "which overlaps:" : "which leaves a hole:",
                               (unsigned long long)at);
        at = t->end;
    }
    if (at != section)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu bytes follow the last tensor; the file is damaged, "
                        "fetch it again",
                        s->file, (unsigned long long)(section - at));
    if (st->n)
        qsort(st->tensors, st->n, sizeof *st->tensors, by_name);
    for (uint64_t i = 1; i < st->n; i++)
        if (strcmp(st->tensors[i - 1].name, st->tensors[i].name) == 0)
            return TENSOR_FAIL(s, &st->tensors[i], "the name is there twice%s", "");
    return TSR_OK;
}

static tsr_status parse(struct tsr_safetensors *st, struct tsr_checkpoint_scan *s, uint64_t section)
{
    TSR_TRY(parse_members(s, st));
    tsr_checkpoint_scan_space(s);
    if (s->p != s->end)
        return tsr_checkpoint_scan_fail(s, "text past the end of the header");
    return check_cover(s, st, section);
}

tsr_status tsr_safetensors_parse(struct tsr_safetensors *st, const char *name, const void *data,
                                 uint64_t bytes, uint64_t file_size, struct tsr_err *err)
{
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
    const unsigned char *b = data;
    uint64_t             len = 0;
    if (bytes < 8 || file_size < 8)
        return tsr_fail(err, TSR_E_INPUT, "%s: %llu bytes are too short for a safetensors file",
                        name, (unsigned long long)(bytes < file_size ? bytes : file_size));
    for (int i = 7; i >= 0; i--)
        len = len << 8 | b[i];
    if (len > TSR_ST_MAX_HEADER)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the header would be %llu bytes long, the limit is %u; this is no "
                        "safetensors file or it is damaged",
                        name, (unsigned long long)len, TSR_ST_MAX_HEADER);
    if (len > file_size - 8 || len > bytes - 8)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the header should have %llu bytes, %llu are there; the file is cut "
                        "off, fetch it again",
                        name, (unsigned long long)len,
                        (unsigned long long)((bytes < file_size ? bytes : file_size) - 8));
    st->data_offset = 8 + len;
    st->text = tsr_new(len + 1, 1);
    if (!st->text)
        return tsr_fail_nomem(err, len + 1, name);
    const char                *text = (const char *)data + 8;
    struct tsr_checkpoint_scan s = { name, text, text, text + len, st->text, err };
    tsr_status                 r = parse(st, &s, file_size - st->data_offset);
    if (r != TSR_OK)
        tsr_safetensors_close(st);
    return r;
}

void tsr_safetensors_close(struct tsr_safetensors *st)
{
    if (st->reader.close)
        st->reader.close(st->reader.self);
    tsr_file_close(&st->file);
    free(st->tensors);
    free(st->meta_keys);
    free(st->meta_values);
    free(st->text);
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
}
