/* kv_b of latent attention, which newer files of llama.cpp have in two tensors, as it multiplies with them: of each head
 * the transposed rows of its keys, [rank][nope], and the rows of its values, [v][rank].  The matrix of a Hugging Face
 * checkpoint is [head][nope rows of keys, v rows of values][rank]. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tsr_status wrong_shape(const struct tsr_gguf *g, const struct tsr_gguf_tensor *t,
                              uint64_t cols, uint64_t rows, uint64_t heads, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: tensor \"%s\" is not [%llu, %llu, %llu], which the metadata ask for",
                    g->path, t->name, (unsigned long long)heads, (unsigned long long)rows,
                    (unsigned long long)cols);
}

static bool is_shape(const struct tsr_gguf_tensor *t, uint64_t cols, uint64_t rows, uint64_t heads)
{
    return t->rank == 3 && t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == heads;
}

tsr_status tsr_gguf_halves_find(const struct tsr_gguf *g, const struct tsr_model_hparams *hp,
                                const struct tsr_gguf_tensor *keys, struct tsr_gguf_halves *h,
                                struct tsr_err *err)
{
    static const char half[] = ".attn_k_b.";
    char              name[TSR_GGUF_MAX_NAME + 32];
    (void)snprintf(name, sizeof name, "%s", keys->name);
    char *at = strstr(name, half);
    if (!at)
        return tsr_fail(err, TSR_E_BUG, "%s: no half of kv_b", keys->name);
    at[sizeof ".attn_" - 1] = 'v';
    const struct tsr_gguf_tensor *values = tsr_gguf_find(g, name);
    if (!values)
        return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%s\" is there without \"%s\"", g->path,
                        keys->name, name);
    uint32_t dtype = tsr_gguf_dtype(keys->type);
    *h = (struct tsr_gguf_halves){ .keys = keys,
                                   .values = values,
                                   .heads = hp->heads,
                                   .nope = hp->latent.nope,
                                   .v = hp->latent.v,
                                   .rank = hp->latent.rank,
                                   .dtype = keys->type == values->type && dtype ? dtype : TSR_F32 };
    if (!is_shape(keys, h->nope, h->rank, h->heads))
        return wrong_shape(g, keys, h->nope, h->rank, h->heads, err);
    if (!is_shape(values, h->rank, h->v, h->heads))
        return wrong_shape(g, values, h->rank, h->v, h->heads, err);
    return TSR_OK;
}

/* n elements of the file as they come out. */
static tsr_status convert(const struct tsr_gguf_halves *h, const struct tsr_gguf_tensor *t,
                          const unsigned char *raw, uint64_t n, void *dst, const char *path,
                          struct tsr_err *err)
{
    float *f = dst;
    if (tsr_gguf_dtype(t->type) == h->dtype) {
        memcpy(dst, raw, n * tsr_dtype_size(h->dtype));
        return TSR_OK;
    }
    tsr_gguf_widen(t->type, raw, n, f);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(f[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: tensor \"%s\" has the value %g; the file is damaged", path,
                            t->name, (double)f[i]);
    return TSR_OK;
}

/* Part i of n equal ones of a tensor. */
static tsr_status read_part(const struct tsr_gguf_halves *h, const struct tsr_file *file,
                            const struct tsr_gguf_tensor *t, uint64_t i, uint64_t n,
                            unsigned char *raw, void *dst, const char *path, struct tsr_err *err)
{
    uint64_t bytes = t->bytes / n, elements = t->dims[0] * t->dims[1] * t->dims[2] / n;
    TSR_TRY(tsr_file_read(file, t->at + i * bytes, raw, bytes, err));
    return convert(h, t, raw, elements, dst, path, err);
}

/* Column i of a head's keys, which is a row of the matrix. */
static void put_key(const struct tsr_gguf_halves *h, const unsigned char *keys, uint64_t i,
                    unsigned char *dst)
{
    size_t size = tsr_dtype_size(h->dtype);
    for (uint64_t c = 0; c < h->rank; c++)
        memcpy(dst + c * size, keys + (c * h->nope + i) * size, size);
}

tsr_status tsr_gguf_halves_read(const struct tsr_gguf_halves *h, const struct tsr_file *file,
                                uint64_t first, uint64_t n, unsigned char *dst, const char *path,
                                struct tsr_err *err)
{
    uint64_t       per = h->nope + h->v, size = tsr_dtype_size(h->dtype), have = h->heads;
    uint64_t       key_bytes = h->keys->bytes / h->heads;
    uint64_t       value_bytes = h->values->bytes / (h->heads * h->v);
    unsigned char *raw = tsr_new_aligned(key_bytes > value_bytes ? key_bytes : value_bytes, 1);
    unsigned char *keys = tsr_new_aligned(h->rank * h->nope, 4);
    unsigned char *row = tsr_new_aligned(h->rank, 4); /* aligned for floats, whatever dst is */
    tsr_status     st = raw && keys && row ? TSR_OK : tsr_fail_nomem(err, key_bytes, h->keys->name);
    for (uint64_t r = first; r < first + n && st == TSR_OK; r++) {
        uint64_t head = r / per, i = r % per;
        if (i < h->nope && head != have) {
            st = read_part(h, file, h->keys, head, h->heads, raw, keys, path, err);
            have = head;
        } else if (i >= h->nope) {
            st = read_part(h, file, h->values, head * h->v + (i - h->nope), h->heads * h->v, raw,
                           row, path, err);
        }
        if (st == TSR_OK && i < h->nope)
            put_key(h, keys, i, row);
        if (st == TSR_OK)
            memcpy(dst + (r - first) * h->rank * size, row, h->rank * size);
    }
    free(raw);
    free(keys);
    free(row);
    return st;
}
