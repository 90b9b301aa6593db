/* Writer: declarations first, so that the header is complete before the first byte of data. */
#include "base/f16.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

struct tsr_st_out {
    struct tsr_writer w;
    char             *header; /* JSON so far, without the closing brace */
    uint64_t          n, cap;
    uint64_t          declared; /* bytes of data */
    uint64_t          put;
    char            **names; /* to refuse a name that is declared twice */
    uint64_t          n_names, cap_names;
    bool              meta, begun;
};

static tsr_status append(struct tsr_st_out *o, const char *s, uint64_t n, struct tsr_err *err)
{
    if (o->cap - o->n < n + 1) {
        uint64_t want = (o->n + n + 1) * 2;
        char    *p = tsr_renew(o->header, want, 1);
        if (!p)
            return tsr_fail_nomem(err, want, "a safetensors header");
        o->header = p;
        o->cap = want;
    }
    memcpy(o->header + o->n, s, n);
    o->n += n;
    o->header[o->n] = '\0';
    return TSR_OK;
}

static tsr_status append_text(struct tsr_st_out *o, const char *s, struct tsr_err *err)
{
    return append(o, s, strlen(s), err);
}

static tsr_status append_string(struct tsr_st_out *o, const char *s, struct tsr_err *err)
{
    TSR_TRY(append(o, "\"", 1, err));
    for (; *s; s++) {
        char          esc[8];
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            (void)snprintf(esc, sizeof esc, "\\%c", c);
        else if (c < 0x20)
            (void)snprintf(esc, sizeof esc, "\\u%04x", c);
        else
            (void)snprintf(esc, sizeof esc, "%c", c);
        TSR_TRY(append_text(o, esc, err));
    }
    return append(o, "\"", 1, err);
}

tsr_status tsr_safetensors_create(struct tsr_st_out **out, const char *path, struct tsr_err *err)
{
    struct tsr_st_out *o = tsr_new(1, sizeof *o);
    if (!o)
        return tsr_fail_nomem(err, sizeof *o, path);
    tsr_status st = append_text(o, "{", err);
    if (st == TSR_OK)
        st = tsr_writer_open(&o->w, path, err);
    if (st != TSR_OK) {
        tsr_safetensors_abort(o);
        return st;
    }
    *out = o;
    return TSR_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

tsr_status tsr_safetensors_declare(struct tsr_st_out *o, const char *name, uint32_t dtype,
                                   uint32_t rank, const uint64_t *shape, struct tsr_err *err)
{
    return tsr_safetensors_declare_as(o, name, tsr_dtype_name(dtype), tsr_dtype_size(dtype), rank,
                                      shape, err);
}

tsr_status tsr_safetensors_declare_as(struct tsr_st_out *o, const char *name, const char *dtype,
                                      uint64_t size, uint32_t rank, const uint64_t *shape,
                                      struct tsr_err *err)
{
    uint64_t bytes = size, end, len = strlen(name);
    if (o->begun || bytes == 0 || rank > TSR_ST_MAX_RANK || len == 0 || len > TSR_ST_MAX_NAME ||
        strcmp(name, "__metadata__") == 0 || o->n_names == TSR_ST_MAX_TENSORS)
        return tsr_fail(err, TSR_E_INVAL, "%s: tensor \"%.200s\" cannot be declared", o->w.path,
                        name);
    for (uint32_t d = 0; d < rank; d++)
        if (!tsr_mul(bytes, shape[d], &bytes))
            return tsr_fail(err, TSR_E_INVAL, "%s: tensor \"%.200s\" is too large", o->w.path,
                            name);
    if (!tsr_add(o->declared, bytes, &end) || end > INT64_MAX)
        return tsr_fail(err, TSR_E_INVAL, "%s: tensor \"%.200s\" is too large", o->w.path, name);
    if (o->n_names == o->cap_names) {
        uint64_t want = o->cap_names ? o->cap_names * 2 : 64;
        char   **p = tsr_renew(o->names, want, sizeof *p);
        if (!p)
            return tsr_fail_nomem(err, want * sizeof *p, o->w.path);
        o->names = p;
        o->cap_names = want;
    }
    o->names[o->n_names] = tsr_strdup(name);
    if (!o->names[o->n_names])
        return tsr_fail_nomem(err, len + 1, o->w.path);
    o->n_names++;
    char text[96];
    TSR_TRY(append_text(o, o->n > 1 ? "," : "", err));
    TSR_TRY(append_string(o, name, err));
    (void)snprintf(text, sizeof text, ":{\"dtype\":\"%.12s\",\"shape\":[", dtype);
    TSR_TRY(append_text(o, text, err));
    for (uint32_t d = 0; d < rank; d++) {
        (void)snprintf(text, sizeof text, "%s%llu", d ? "," : "", (unsigned long long)shape[d]);
        TSR_TRY(append_text(o, text, err));
    }
    (void)snprintf(text, sizeof text, "],\"data_offsets\":[%llu,%llu]}",
                   (unsigned long long)o->declared, (unsigned long long)end);
    TSR_TRY(append_text(o, text, err));
    o->declared = end;
    return TSR_OK;
}

/* All metadata are one member, so they come before the first tensor. */
tsr_status tsr_safetensors_metadata(struct tsr_st_out *o, const char *key, const char *value,
                                    struct tsr_err *err)
{
    if (o->begun || o->n_names)
        return tsr_fail(err, TSR_E_INVAL, "%s: metadata come before the first tensor", o->w.path);
    if (o->meta)
        o->n--; /* the closing brace of the member */
    TSR_TRY(append_text(o, o->meta ? "," : "\"__metadata__\":{", err));
    o->meta = true;
    TSR_TRY(append_string(o, key, err));
    TSR_TRY(append_text(o, ":", err));
    TSR_TRY(append_string(o, value, err));
    return append_text(o, "}", err);
}

tsr_status tsr_safetensors_begin(struct tsr_st_out *o, struct tsr_err *err)
{
    if (o->begun)
        return tsr_fail(err, TSR_E_INVAL, "%s: begun twice", o->w.path);
    if (o->n_names)
        qsort(o->names, o->n_names, sizeof *o->names, compare_names);
    for (uint64_t i = 1; i < o->n_names; i++)
        if (strcmp(o->names[i - 1], o->names[i]) == 0)
            return tsr_fail(err, TSR_E_INVAL, "%s: tensor \"%.200s\" is declared twice", o->w.path,
                            o->names[i]);
    TSR_TRY(append_text(o, "}", err));
    while ((8 + o->n) % 64 != 0)
        TSR_TRY(append_text(o, " ", err));
    if (o->n > TSR_ST_MAX_HEADER)
        return tsr_fail(err, TSR_E_INVAL, "%s: the header has more than %u bytes", o->w.path,
                        TSR_ST_MAX_HEADER);
    unsigned char word[8];
    for (int i = 0; i < 8; i++)
        word[i] = (unsigned char)(o->n >> 8 * i);
    tsr_writer_put(&o->w, word, 8);
    tsr_writer_put(&o->w, o->header, o->n);
    o->begun = true;
    return TSR_OK;
}

void tsr_safetensors_put(struct tsr_st_out *o, const void *data, uint64_t bytes)
{
    o->put += bytes;
    tsr_writer_put(&o->w, data, bytes);
}

tsr_status tsr_safetensors_commit(struct tsr_st_out *o, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    if (!o->begun || o->put != o->declared)
        st = tsr_fail(err, TSR_E_INVAL, "%s: %llu bytes were declared, %llu written", o->w.path,
                      (unsigned long long)o->declared, (unsigned long long)o->put);
    else
        st = tsr_writer_commit(&o->w, err);
    tsr_safetensors_abort(o);
    return st;
}

void tsr_safetensors_abort(struct tsr_st_out *o)
{
    if (!o)
        return;
    tsr_writer_abort(&o->w);
    for (uint64_t i = 0; i < o->n_names; i++)
        free(o->names[i]);
    free(o->names);
    free(o->header);
    free(o);
}
