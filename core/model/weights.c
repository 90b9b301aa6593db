/* Reads the planned tensors in the order of their names, so that the hash does not depend on
 * how a checkpoint is cut into files. */
#include "base/f16.h"
#include "base/hash.h"
#include "base/mem.h"
#include "model/bind.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(4) << 20)

static int by_source(const void *a, const void *b)
{
    const struct tsr_model_tensor_load *x = a, *y = b;
    return x->src < y->src ? -1 : x->src > y->src;
}

static int compare_last(const void *a, const void *b)
{
    const struct tsr_model_tensor_load *x = a, *y = b;
    return x->compare != y->compare ? (x->compare ? 1 : -1) : by_source(a, b);
}

/* Rows that take turns, of `row` bytes each, matrix by matrix. */
static void split_groups(unsigned char *dst, const unsigned char *src,
                         const struct tsr_model_row_groups *g, uint64_t row)
{
    uint64_t together = 0, before = 0;
    for (uint32_t p = 0; p < g->parts; p++)
        together += g->rows[p] * row;
    for (uint32_t p = 0; p < g->parts; p++) {
        uint64_t block = g->rows[p] * row;
        for (uint64_t i = 0; i < g->n; i++, dst += block)
            memcpy(dst, src + i * together + before, block);
        before += block;
    }
}

/* The linears of all experts, [stack, rows, cols] or transposed, `size` bytes each, to [stack, rows, cols]; interleaved,
 * rows 0, 2, 4, ... of an expert come before 1, 3, 5, ... */
static void arrange(unsigned char *dst, const unsigned char *src,
                    const struct tsr_model_tensor_load *l, uint64_t size)
{
    const struct tsr_safetensors_tensor *t = l->src->t;
    uint64_t a = t->shape[1], b = t->rank == 2 ? 1 : t->shape[2]; /* biases: [stack, rows] */
    uint64_t rows = l->transposed ? b : a, cols = l->transposed ? a : b;
    uint64_t step = l->transposed ? rows * size : size;
    for (uint64_t e = 0; e < t->shape[0]; e++)
        for (uint64_t r = 0; r < rows; r++) {
            uint64_t             to = l->interleaved ? r % 2 * (rows / 2) + r / 2 : r;
            unsigned char       *d = dst + (e * rows + to) * cols * size;
            const unsigned char *s =
                src + e * rows * cols * size + r * (l->transposed ? size : cols * size);
            for (uint64_t c = 0; c < cols; c++)
                memcpy(d + c * size, s + c * step, size);
        }
}

void tsr_model_load_label(struct tsr_hasher *hash, const struct tsr_safetensors_tensor *t)
{
    tsr_hasher_update(hash, t->name, strlen(t->name) + 1);
    tsr_hasher_update(hash, t->dtype_name, strlen(t->dtype_name) + 1);
    tsr_hasher_update(hash, t->shape, t->rank * sizeof *t->shape);
}

/* Straight into its place, hashed while it is warm. */
static tsr_status read_plain(const struct tsr_safetensors        *st,
                             const struct tsr_safetensors_tensor *t, unsigned char *dst,
                             struct tsr_hasher *hash, struct tsr_err *err)
{
    for (uint64_t at = t->begin; at < t->end;) {
        uint64_t n = t->end - at < CHUNK ? t->end - at : CHUNK;
        TSR_TRY(tsr_safetensors_read_part(st, t, at - t->begin, n, dst, err));
        if (hash)
            tsr_hasher_update(hash, dst, n);
        dst += n;
        at += n;
    }
    return TSR_OK;
}

static tsr_status read_compared(const struct tsr_safetensors        *st,
                                const struct tsr_safetensors_tensor *t, const unsigned char *with,
                                struct tsr_err *err)
{
    unsigned char *buf = tsr_new(CHUNK, 1);
    tsr_status     r = buf ? TSR_OK : tsr_fail_nomem(err, CHUNK, st->file.path);
    for (uint64_t at = t->begin; r == TSR_OK && at < t->end;) {
        uint64_t n = t->end - at < CHUNK ? t->end - at : CHUNK;
        r = tsr_safetensors_read_part(st, t, at - t->begin, n, buf, err);
        if (r == TSR_OK && memcmp(buf, with + (at - t->begin), n) != 0)
            r = tsr_fail(
                err, TSR_E_INPUT,
                "%s: config.json ties the output head to the embedding, but \"%s\" differs "
                "from it; remove the tensor or set tie_word_embeddings to false",
                st->file.path, t->name);
        at += n;
    }
    free(buf);
    return r;
}

tsr_status tsr_model_load_pass(const struct tsr_safetensors        *st,
                               const struct tsr_safetensors_tensor *t, struct tsr_hasher *hash,
                               struct tsr_st_out *to, struct tsr_err *err)
{
    unsigned char *buf = tsr_new(CHUNK, 1);
    tsr_status     r = buf ? TSR_OK : tsr_fail_nomem(err, CHUNK, st->file.path);
    for (uint64_t at = t->begin; r == TSR_OK && at < t->end;) {
        uint64_t n = t->end - at < CHUNK ? t->end - at : CHUNK;
        r = tsr_safetensors_read_part(st, t, at - t->begin, n, buf, err);
        if (r == TSR_OK) {
            if (hash)
                tsr_hasher_update(hash, buf, n);
            if (to)
                tsr_safetensors_put(to, buf, n);
        }
        at += n;
    }
    free(buf);
    return r;
}

/* Through a buffer: tensors that are widened or split. */
static tsr_status read_changed(const struct tsr_safetensors       *st,
                               const struct tsr_model_tensor_load *l, void *dst, float *floats,
                               struct tsr_hasher *hash, struct tsr_err *err)
{
    const struct tsr_safetensors_tensor *t = l->src->t;
    uint64_t       bytes = t->end - t->begin, n = bytes / tsr_dtype_size(t->dtype);
    unsigned char *raw = tsr_new_aligned(bytes, 1);
    if (!raw)
        return tsr_fail_nomem(err, bytes, t->name);
    float     *wide = NULL;
    tsr_status r = read_plain(st, t, raw, hash, err);
    bool       stacked = l->interleaved || l->transposed;
    if (r == TSR_OK && !l->widen && stacked) {
        arrange(dst, raw, l, tsr_dtype_size(t->dtype));
    } else if (r == TSR_OK && !l->widen) {
        split_groups(dst, raw, &l->groups, bytes / t->shape[0]);
    } else if (r == TSR_OK && !l->groups.n && !stacked) {
        tsr_widen(floats, raw, t->dtype, n);
    } else if (r == TSR_OK && !(wide = tsr_new(n, sizeof *wide))) {
        r = tsr_fail_nomem(err, n * sizeof *wide, t->name);
    } else if (r == TSR_OK) {
        tsr_widen(wide, raw, t->dtype, n);
        if (stacked)
            arrange((unsigned char *)floats, (const unsigned char *)wide, l, sizeof *wide);
        else
            split_groups((unsigned char *)floats, (const unsigned char *)wide, &l->groups,
                         sizeof *wide);
    }
    free(wide);
    free(raw);
    return r;
}

tsr_status tsr_model_load_tensor(const struct tsr_checkpoint_shards *s,
                                 const struct tsr_model_tensor_load *l, void *dst, float *floats,
                                 struct tsr_hasher *hash, struct tsr_err *err)
{
    const struct tsr_safetensors *st = &s->files[l->src->file];
    if (l->widen || l->groups.n || l->interleaved || l->transposed)
        return read_changed(st, l, dst, floats, hash, err);
    return read_plain(st, l->src->t, dst, hash, err);
}

static tsr_status read_all(struct tsr_model_binding *b, struct tsr_model_storage *s,
                           struct tsr_hasher *hash)
{
    static unsigned char none; /* if all matrices are packed, only norms and biases are read */
    unsigned char       *base = s->sealed.data ? s->sealed.data : &none;
    for (uint64_t i = 0; i < b->n_loads; i++) {
        const struct tsr_model_tensor_load *l = &b->loads[i];
        const struct tsr_safetensors       *st = &b->shards->files[l->src->file];
        unsigned char                      *at = base + (l->widen || l->layered ? 0 : l->at);
        if (l->compare) {
            TSR_TRY(read_compared(st, l->src->t, at, b->err));
            continue;
        }
        tsr_model_load_label(hash, l->src->t);
        if (l->layered)
            TSR_TRY(tsr_model_load_pass(st, l->src->t, hash, NULL, b->err));
        else
            TSR_TRY(tsr_model_load_tensor(b->shards, l, at, l->widen ? s->floats + l->at : NULL,
                                          hash, b->err));
    }
    for (uint32_t i = 0; i < b->shards->n_files; i++)
        TSR_TRY(tsr_file_unchanged(&b->shards->files[i].file, b->err));
    return TSR_OK;
}

tsr_status tsr_model_weights_read(struct tsr_model_binding *b, struct tsr_model_storage *s,
                                  struct tsr_hasher *hash, bool headers_only)
{
    /* little-endian on disk and in the hash; so are the machines that this runs on */
    qsort(b->loads, b->n_loads, sizeof *b->loads, compare_last);
    if (headers_only) {
        for (uint64_t i = 0; i < b->n_loads; i++)
            if (!b->loads[i].compare)
                tsr_model_load_label(hash, b->loads[i].src->t);
        return TSR_OK;
    }
    TSR_TRY(tsr_sealed_create(&s->sealed, b->bytes, "the model's weights", b->err));
    s->floats = tsr_new_aligned(b->floats, sizeof *s->floats);
    if (!s->floats)
        return tsr_fail_nomem(b->err, b->floats * sizeof *s->floats, "norms and biases");
    if (!(b->config->has & TSR_HAS_AFFINE)) {
        for (uint64_t i = 0; i < b->config->hp.hidden; i++) {
            s->floats[b->ones + i] = 1.0f;
            s->floats[b->zeros + i] = 0.0f;
        }
    }
    TSR_TRY(read_all(b, s, hash));
    TSR_TRY(tsr_sealed_seal(&s->sealed, b->err));
    for (uint64_t i = 0; i < b->n_patches; i++) {
        const struct tsr_model_patch *p = &b->patches[i];
        if (p->layered)
            continue;
        if (p->data)
            *p->data = (unsigned char *)s->sealed.data + p->at;
        else
            *p->floats = s->floats + p->at;
    }
    return TSR_OK;
}
