/* A GGUF file as a container of tensors under their Hugging Face names.  Floats are unchanged,
 * quantized blocks are widened to F32, a few rows in memory at a time. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUN (UINT64_C(1) << 20) /* bytes of the file that are read at once, or one row */

struct item {
    const struct tsr_gguf_tensor *t;
    struct tsr_gguf_map           map;
    uint64_t                      rows, cols, row_bytes; /* in the file */
    uint32_t                      dtype;                 /* dtype after conversion */
    struct tsr_gguf_halves        halves;                /* of TSR_GGUF_HALVES */
};

struct source {
    struct tsr_gguf         g;
    struct item            *items; /* as the container's tensors */
    struct tsr_safetensors *st;
};

/* ---- reading ------------------------------------------------------------------------ */

/* n rows of src, as they come out.  first is for messages. */
static tsr_status convert(const struct item *it, const unsigned char *src, uint64_t first,
                          uint64_t n, unsigned char *dst, const char *path, struct tsr_err *err)
{
    float         *f = (float *)(void *)dst;
    const uint64_t cols = it->cols;
    if (tsr_gguf_dtype(it->t->type) == it->dtype && it->map.offset == 0 && !it->map.decay) {
        memcpy(dst, src, n * it->row_bytes);
        return TSR_OK;
    }
    tsr_gguf_widen(it->t->type, src, n * cols, f);
    for (uint64_t i = 0; i < n * cols; i++) {
        uint64_t row = cols ? i / cols : 0;
        if (!isfinite(f[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: tensor \"%s\": row %llu column %llu is %g; the file is damaged",
                            path, it->t->name, (unsigned long long)first + row,
                            (unsigned long long)i - row * cols, (double)f[i]);
        if (it->map.offset != 0)
            f[i] -= it->map.offset;
        if (it->map.decay && !(f[i] < 0))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: tensor \"%s\": head %llu decays at the rate %g, which is not "
                            "below 0",
                            path, it->t->name, (unsigned long long)(first + i), (double)f[i]);
        if (it->map.decay)
            f[i] = (float)log(-(double)f[i]);
    }
    return TSR_OK;
}

static bool is_turned(const struct item *it)
{
    return it->map.order != TSR_GGUF_PLAIN && !it->map.columns;
}

/* Columns of n rows, from the file's order; room: a row. */
static void turn_columns(const struct item *it, uint64_t n, unsigned char *rows,
                         unsigned char *room)
{
    uint64_t size = tsr_dtype_size(it->dtype), row = it->cols * size;
    for (uint64_t r = 0; r < n; r++, rows += row) {
        memcpy(room, rows, row);
        for (uint64_t c = 0; c < it->cols; c++)
            memcpy(rows + c * size, room + tsr_gguf_row(&it->map, it->cols, c) * size, size);
    }
}

static tsr_status read_rows(const struct source *s, const struct item *it, uint64_t first,
                            uint64_t n, unsigned char *dst, unsigned char *raw, struct tsr_err *err)
{
    uint64_t out = it->cols * tsr_dtype_size(it->dtype);
    uint64_t run = is_turned(it) ? 1 : RUN / it->row_bytes;
    run = run ? run : 1;
    if (it->map.order == TSR_GGUF_HALVES)
        return tsr_gguf_halves_read(&it->halves, &s->st->file, first, n, dst, s->g.path, err);
    for (uint64_t r = first; r < first + n; r += run) {
        uint64_t m = first + n - r < run ? first + n - r : run;
        uint64_t from = is_turned(it) ? tsr_gguf_row(&it->map, it->rows, r) : r;
        uint64_t at = it->t->at + from * it->row_bytes;
        TSR_TRY(tsr_file_read(&s->st->file, at, raw, m * it->row_bytes, err));
        TSR_TRY(convert(it, raw, r, m, dst + (r - first) * out, s->g.path, err));
        if (it->map.columns)
            turn_columns(it, m, dst + (r - first) * out, raw);
    }
    return TSR_OK;
}

/* Any bytes of a tensor, from an offset that is aligned for its elements: whole rows directly, the first and
 * the last through a row buffer. */
static tsr_status read_bytes(const struct source *s, const struct item *it, uint64_t at,
                             uint64_t bytes, unsigned char *dst, unsigned char *raw,
                             unsigned char *row, struct tsr_err *err)
{
    uint64_t out = it->cols * tsr_dtype_size(it->dtype);
    while (bytes > 0) {
        uint64_t r = at / out, skip = at % out, n = bytes / out;
        if (skip == 0 && n > 0) {
            TSR_TRY(read_rows(s, it, r, n, dst, raw, err));
            n *= out;
        } else {
            n = out - skip < bytes ? out - skip : bytes;
            TSR_TRY(read_rows(s, it, r, 1, row, raw, err));
            memcpy(dst, row + skip, n);
        }
        dst += n;
        at += n;
        bytes -= n;
    }
    return TSR_OK;
}

static tsr_status source_read(void *self, const struct tsr_safetensors_tensor *t, uint64_t at,
                              uint64_t bytes, void *dst, struct tsr_err *err)
{
    const struct source *s = self;
    const struct item   *it = &s->items[t - s->st->tensors];
    uint64_t             run = it->row_bytes > RUN ? it->row_bytes : RUN;
    run = run > 4 * it->cols ? run : 4 * it->cols; /* a row of floats goes through it, too */
    unsigned char *raw = tsr_new_aligned(run, 1);
    /* a separate row is aligned for floats, whatever dst is */
    unsigned char *row = tsr_new_aligned(it->cols, 4);
    tsr_status     st = raw && row ? TSR_OK : tsr_fail_nomem(err, run, t->name);
    if (st == TSR_OK)
        st = read_bytes(s, it, at, bytes, dst, raw, row, err);
    free(raw);
    free(row);
    return st;
}

static void source_close(void *self)
{
    struct source *s = self;
    tsr_gguf_close(&s->g);
    free(s->items);
    free(s);
}

/* ---- the list -------------------------------------------------------------------------- */

static void name_of(const struct item *it, struct tsr_safetensors_tensor *t)
{
    t->name = it->map.name;
    t->dtype = it->dtype;
    (void)snprintf(t->dtype_name, sizeof t->dtype_name, "%s", tsr_dtype_name(it->dtype));
}

/* A matrix of two tensors, whose sizes are those of the metadata. */
static tsr_status shape_halves(struct source *s, const struct tsr_model_hparams *hp,
                               struct item *it, struct tsr_safetensors_tensor *t,
                               struct tsr_err *err)
{
    const struct tsr_gguf_halves *h = &it->halves;
    TSR_TRY(tsr_gguf_halves_find(&s->g, hp, it->t, &it->halves, err));
    it->rows = h->heads * (h->nope + h->v);
    it->cols = h->rank;
    it->row_bytes = h->keys->bytes / h->heads; /* read together */
    it->dtype = h->dtype;
    t->rank = 2;
    t->shape[0] = it->rows;
    t->shape[1] = it->cols;
    t->end = it->rows * it->cols * tsr_dtype_size(it->dtype); /* both are in a file */
    name_of(it, t);
    return TSR_OK;
}

static tsr_status shape(struct source *s, struct item *it, struct tsr_safetensors_tensor *t,
                        struct tsr_err *err)
{
    const struct tsr_gguf_tensor *g = it->t;
    uint64_t                      heads = it->map.heads;
    if (g->rank > (it->map.stacked ? 3u : 2u))
        return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%s\" has %u dimensions; %s are wanted",
                        s->g.path, g->name, g->rank, it->map.stacked ? "2 or 3" : "1 or 2");
    t->rank = g->rank;
    for (uint32_t d = 0; d < g->rank; d++)
        t->shape[d] = g->dims[g->rank - 1 - d];
    if (it->map.deep && g->rank == 2) {
        t->rank = 3;
        t->shape[2] = t->shape[1];
        t->shape[1] = 1;
    }
    it->rows = g->rank == 1 ? g->dims[0] : tsr_gguf_rows(g);
    it->cols = g->rank == 1 ? 1 : g->dims[0];
    bool     tiled = it->map.order == TSR_GGUF_TILED;
    uint64_t per = it->map.order == TSR_GGUF_PARTS ? 3 * heads : tiled ? heads : 2 * heads;
    uint64_t turned = it->map.columns ? it->cols : it->rows, first = it->map.first;
    if (it->map.order != TSR_GGUF_PLAIN &&
        (per == 0 || turned <= first || (turned - first) % per != 0 ||
         (tiled && (it->map.keys == 0 || heads % it->map.keys != 0))))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: tensor \"%s\" has %llu %s, which %llu heads cannot share", s->g.path,
                        g->name, (unsigned long long)turned, it->map.columns ? "columns" : "rows",
                        (unsigned long long)heads);
    if (g->rank == 1 && it->map.order == TSR_GGUF_PLAIN) {
        it->cols = it->rows;
        it->rows = 1;
    }
    if (g->rank == 1 && !tsr_gguf_dtype(g->type))
        return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%s\" is a quantized vector", s->g.path,
                        g->name);
    it->row_bytes = g->bytes / it->rows;
    bool same = it->map.offset == 0 && !it->map.decay && tsr_gguf_dtype(g->type);
    it->dtype = same ? tsr_gguf_dtype(g->type) : TSR_F32;
    name_of(it, t);
    uint64_t n = it->rows * it->cols; /* its bytes in the file are counted, so it is small enough */
    if (!tsr_mul(n, tsr_dtype_size(it->dtype), &t->end))
        return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%s\" is too large", s->g.path, g->name);
    return TSR_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->map.name, ((const struct item *)b)->map.name);
}

static tsr_status list(struct source *s, const struct tsr_model_family *f,
                       const struct tsr_model_hparams *hp, struct tsr_err *err)
{
    struct tsr_safetensors *st = s->st;
    uint64_t                n = 0;
    for (uint64_t i = 0; i < s->g.n; i++) {
        bool is = false;
        s->items[n].t = &s->g.tensors[i];
        TSR_TRY(tsr_gguf_map(&s->g, f, hp, &s->g.tensors[i], &s->items[n].map, &is, err));
        n += is;
    }
    if (n)
        qsort(s->items, n, sizeof *s->items, by_name);
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(s->items[i].map.order == TSR_GGUF_HALVES
                    ? shape_halves(s, hp, &s->items[i], &st->tensors[i], err)
                    : shape(s, &s->items[i], &st->tensors[i], err));
    st->n = n;
    return TSR_OK;
}

tsr_status tsr_gguf_shards(struct tsr_checkpoint_shards *shards, struct tsr_gguf *g,
                           const struct tsr_model_family *f, const struct tsr_model_hparams *hp,
                           struct tsr_err *err)
{
    memset(shards, 0, sizeof *shards);
    struct source          *s = tsr_new(1, sizeof *s);
    struct tsr_safetensors *st = tsr_new(1, sizeof *st);
    if (!s || !st) {
        free(s);
        free(st);
        tsr_gguf_close(g);
        return tsr_fail_nomem(err, sizeof *s, "a GGUF file");
    }
    s->g = *g;
    s->st = st;
    memset(g, 0, sizeof *g);
    g->file.fd = -1;
    st->file = s->g.file; /* closed with the container */
    s->g.file = (struct tsr_file){ .fd = -1 };
    st->reader = (struct tsr_safetensors_reader){ source_read, source_close, s };
    shards->files = st;
    shards->n_files = 1;
    s->items = tsr_new(s->g.n, sizeof *s->items);
    st->tensors = tsr_new(s->g.n, sizeof *st->tensors);
    shards->tensors = tsr_new(s->g.n, sizeof *shards->tensors);
    tsr_status r = s->items && st->tensors && shards->tensors
                       ? list(s, f, hp, err)
                       : tsr_fail_nomem(err, s->g.n * sizeof *s->items, "a list of tensors");
    for (uint64_t i = 0; r == TSR_OK && i < st->n; i++)
        shards->tensors[i] = (struct tsr_checkpoint_stored){ .t = &st->tensors[i] };
    shards->n = st->n;
    if (r != TSR_OK)
        tsr_checkpoint_shards_close(shards);
    return r;
}

const struct tsr_gguf *tsr_gguf_of(const struct tsr_checkpoint_shards *s)
{
    if (s->n_files != 1 || s->files[0].reader.read != source_read)
        return NULL;
    return &((const struct source *)s->files[0].reader.self)->g;
}

const struct tsr_gguf_tensor *tsr_gguf_part(const struct tsr_model *m, const char *name)
{
    const struct tsr_gguf *g = m->storage ? tsr_gguf_of(&m->storage->shards) : NULL;
    return g ? tsr_gguf_find(g, name) : NULL;
}

tsr_status tsr_gguf_part_read(const struct tsr_model *m, const struct tsr_gguf_tensor *t,
                              uint64_t at, void *dst, uint64_t n, struct tsr_err *err)
{
    const struct tsr_file *f = &m->storage->shards.files[0].file;
    TSR_TRY(tsr_file_read(f, t->at + at, dst, n, err));
    return tsr_file_unchanged(f, err);
}
