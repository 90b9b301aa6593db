/* Reads importance matrices: sums of squares and counts of a GGUF file, or means times a number of calls. */
#include "checkpoint/gguf/imatrix.h"

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUMS        ".in_sum2"
#define COUNTS      ".counts"
#define MAX_BYTES   (UINT64_C(1) << 31) /* of the older form, which is read as a whole */
#define MAX_ENTRIES (UINT64_C(1) << 20)

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tsr_gguf_imatrix_entry *)a)->name,
                  ((const struct tsr_gguf_imatrix_entry *)b)->name);
}

/* Divides by the count; no inputs: 1. */
static tsr_status divide(const struct tsr_gguf_imatrix *m, const char *name, float *v, uint64_t n,
                         double count, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!(v[i] >= 0) || !isfinite(v[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"%s\": value %llu is %g, not a finite number from 0 on", m->path,
                            name, (unsigned long long)i, (double)v[i]);
        v[i] = count > 0 ? (float)((double)v[i] / count) : 1;
        if (!isfinite(v[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"%s\": value %llu by the count %g is no number of F32", m->path,
                            name, (unsigned long long)i, count);
    }
    return TSR_OK;
}

static tsr_status add(struct tsr_gguf_imatrix *m, const char *name, size_t length, uint64_t n,
                      struct tsr_gguf_imatrix_entry **out, struct tsr_err *err)
{
    struct tsr_gguf_imatrix_entry *e = &m->v[m->n];
    e->n = n;
    e->name = tsr_new(length + 1, 1);
    e->square = tsr_new(n, sizeof *e->square);
    m->n++;
    if (!e->name || !e->square)
        return tsr_fail_nomem(err, n * sizeof *e->square, m->path);
    memcpy(e->name, name, length);
    *out = e;
    return TSR_OK;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static tsr_status read_one(struct tsr_gguf_imatrix *m, const struct tsr_gguf *g,
                           const struct tsr_gguf_tensor *t, struct tsr_err *err)
{
    char                           name[TSR_GGUF_MAX_NAME + sizeof COUNTS];
    size_t                         length = strlen(t->name) - strlen(SUMS);
    struct tsr_gguf_imatrix_entry *e = NULL;
    float                          count;
    (void)snprintf(name, sizeof name, "%.*s" COUNTS, (int)length, t->name);
    const struct tsr_gguf_tensor *c = tsr_gguf_find(g, name);
    uint64_t                      mats = tsr_gguf_rows(t), cols = t->dims[0];
    if (!c || t->type != TSR_GGUF_T_F32 || c->type != TSR_GGUF_T_F32 ||
        c->bytes != mats * sizeof count)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"%s\" is not F32 with as many F32 numbers in \"%s\" as it has rows",
                        m->path, t->name, name);
    TSR_TRY(add(m, t->name, length, mats * cols, &e, err));
    TSR_TRY(tsr_file_read(&g->file, t->at, e->square, t->bytes, err));
    for (uint64_t i = 0; i < mats; i++) {
        TSR_TRY(tsr_file_read(&g->file, c->at + i * sizeof count, &count, sizeof count, err));
        if (!(count >= 0) || !isfinite(count))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"%s\": count %llu is %g, not a finite number "
                            "from 0 on",
                            m->path, name, (unsigned long long)i, (double)count);
        TSR_TRY(divide(m, t->name, e->square + i * cols, cols, (double)count, err));
    }
    return TSR_OK;
}

static tsr_status read_gguf(struct tsr_gguf_imatrix *m, struct tsr_err *err)
{
    struct tsr_gguf g;
    char           *type = NULL;
    TSR_TRY(tsr_gguf_open(&g, m->path, err));
    tsr_status st = tsr_gguf_str(&g, "general.type", true, &type, err);
    if (st == TSR_OK && strcmp(type, "imatrix") != 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s: general.type is \"%.40s\", not \"imatrix\"", m->path,
                      type);
    free(type);
    m->v = tsr_new(g.n + 1, sizeof *m->v);
    if (st == TSR_OK && !m->v)
        st = tsr_fail_nomem(err, g.n * sizeof *m->v, m->path);
    for (uint64_t i = 0; i < g.n && st == TSR_OK; i++) {
        size_t n = strlen(g.tensors[i].name);
        if (n > strlen(SUMS) && strcmp(g.tensors[i].name + n - strlen(SUMS), SUMS) == 0)
            st = read_one(m, &g, &g.tensors[i], err);
    }
    tsr_gguf_close(&g);
    return st;
}

/* ---- the older form --------------------------------------------------------------------------- */

struct bytes {
    const char *v;
    uint64_t    at, n;
};

static bool take(struct bytes *b, void *dst, uint64_t n)
{
    if (n > b->n - b->at)
        return false;
    memcpy(dst, b->v + b->at, n);
    b->at += n;
    return true;
}

/* I32 count; per tensor I32 length and name, I32 calls, I32 n, n F32 that are means times calls. */
static tsr_status read_older(struct tsr_gguf_imatrix *m, struct bytes *b, struct tsr_err *err)
{
    int32_t count = 0, length, calls, n;
    bool    ok = take(b, &count, 4) && count > 0 && (uint64_t)count <= MAX_ENTRIES;
    m->v = ok ? tsr_new((uint64_t)count, sizeof *m->v) : NULL;
    if (ok && !m->v)
        return tsr_fail_nomem(err, (uint64_t)count * sizeof *m->v, m->path);
    for (int32_t i = 0; ok && i < count; i++) {
        struct tsr_gguf_imatrix_entry *e = NULL;
        char                           name[256];
        ok = take(b, &length, 4) && length > 0 && length < (int32_t)sizeof name &&
             take(b, name, (uint64_t)length) && !memchr(name, 0, (size_t)length) &&
             take(b, &calls, 4) && take(b, &n, 4) && n > 0 && (uint64_t)n * 4 <= b->n - b->at;
        if (!ok)
            break;
        TSR_TRY(add(m, name, (size_t)length, (uint64_t)n, &e, err));
        ok = take(b, e->square, (uint64_t)n * 4);
        TSR_TRY(divide(m, e->name, e->square, e->n, calls > 0 ? calls : 1, err));
    }
    return ok ? TSR_OK
              : tsr_fail(err, TSR_E_INPUT,
                         "%s: not an importance matrix: neither GGUF nor the older form, which "
                         "breaks off or has a wrong length near byte %llu",
                         m->path, (unsigned long long)b->at);
}

tsr_status tsr_gguf_imatrix_read(struct tsr_gguf_imatrix *m, const char *path, struct tsr_err *err)
{
    *m = (struct tsr_gguf_imatrix){ .path = tsr_strdup(path) };
    if (!m->path)
        return tsr_fail_nomem(err, strlen(path), "a path");
    tsr_status st;
    if (tsr_gguf_is(path)) {
        st = read_gguf(m, err);
    } else {
        struct bytes b = { 0 };
        char        *data = NULL;
        st = tsr_file_slurp(path, MAX_BYTES, &data, &b.n, err);
        b.v = data;
        if (st == TSR_OK)
            st = read_older(m, &b, err);
        free(data);
    }
    if (st == TSR_OK && m->n == 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s: has no tensor NAME" SUMS, path);
    if (st == TSR_OK)
        qsort(m->v, m->n, sizeof *m->v, by_name);
    for (uint64_t i = 1; i < m->n && st == TSR_OK; i++)
        if (by_name(&m->v[i - 1], &m->v[i]) == 0)
            st = tsr_fail(err, TSR_E_INPUT, "%s: has \"%s\" twice", path, m->v[i].name);
    if (st != TSR_OK)
        tsr_gguf_imatrix_free(m);
    return st;
}

void tsr_gguf_imatrix_free(struct tsr_gguf_imatrix *m)
{
    for (uint64_t i = 0; m->v && i < m->n; i++) {
        free(m->v[i].name);
        free(m->v[i].square);
    }
    free(m->v);
    free(m->path);
    *m = (struct tsr_gguf_imatrix){ 0 };
}

const struct tsr_gguf_imatrix_entry *tsr_gguf_imatrix_find(const struct tsr_gguf_imatrix *m,
                                                           const char                    *name)
{
    const struct tsr_gguf_imatrix_entry key = { .name = (char *)(uintptr_t)name };
    return bsearch(&key, m->v, m->n, sizeof *m->v, by_name);
}
