/* sample.c - the best tokens of rows of logits (tessera/backend_candidates.h): two launches after those of the head, and
 * one small copy to the host. */
#include "backend.h"
#include "tessera/backend_candidates.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))

_Static_assert(TSR_CANDIDATES_MOST == K_CANDIDATES, "keys of a row");

/* Bytes of keys, heads and results. */
struct layout {
    uint64_t parts, keys, heads, out;
};

static struct layout layout_of(uint64_t rows, uint64_t vocab, uint64_t most)
{
    const uint64_t parts = cuda_ceil(vocab, K_CANDIDATES_PART);
    return (struct layout){ .parts = parts,
                            .keys = rows * parts * most * sizeof(uint64_t),
                            .heads = rows * parts * sizeof(uint64_t),
                            .out = rows * (1 + most) * sizeof(uint64_t) };
}

static uint64_t bytes_of(const struct layout *l)
{
    return l->keys + l->heads + l->out;
}

void tsr_cuda_candidates_free(struct tsr_cuda *c)
{
    struct tsr_cuda_candidates *k = &c->candidates;
    c->api->release(c->device, k->address, TSR_CUDA_DEVICE);
    c->host->release(c->host->ctx, k->host, k->host_bytes);
    *k = (struct tsr_cuda_candidates){ 0 };
}

static tsr_status reserve(void *self, uint64_t rows, uint64_t vocab, struct tsr_err *err)
{
    struct tsr_cuda            *c = self;
    struct tsr_cuda_candidates *k = &c->candidates;
    if (rows == 0 || rows > K_CANDIDATES_ROWS || vocab == 0 ||
        vocab > (uint64_t)K_CANDIDATES * K_CANDIDATES_PART)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "candidates of %llu rows of %llu logits; this device takes 1 to %u rows of "
                        "1 to %u",
                        U(rows), U(vocab), K_CANDIDATES_ROWS, K_CANDIDATES * K_CANDIDATES_PART);
    const struct layout l = layout_of(rows, vocab, K_CANDIDATES);
    TSR_CUDA_ALONE(c);
    /* many rows of few logits have more results than one row of many, and take less */
    if (bytes_of(&l) > k->bytes || l.out > k->host_bytes) {
        tsr_status st = tsr_cuda_flush(c, err);
        if (st != TSR_OK)
            return st;
        tsr_cuda_candidates_free(c);
        k->host = c->host->alloc(c->host->ctx, l.out, 64);
        if (!k->host)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes of candidates", U(l.out));
        k->host_bytes = l.out;
        st = c->api->alloc(c->device, bytes_of(&l), TSR_CUDA_DEVICE, &k->address, err);
        if (st != TSR_OK)
            return st;
        k->bytes = bytes_of(&l);
    }
    return TSR_OK;
}

static struct tsr_candidate candidate_of(uint64_t key)
{
    const uint32_t       u = (uint32_t)(key >> 32), bits = u & 0x80000000u ? u & 0x7fffffffu : ~u;
    struct tsr_candidate a = { .id = UINT32_MAX - (uint32_t)key };
    memcpy(&a.logit, &bits, sizeof bits);
    return a;
}

static void unpack(const struct k_candidates *a, const uint64_t *from, struct tsr_candidate *best,
                   struct tsr_candidate_row *row)
{
    for (uint32_t r = 0; r < a->rows; r++) {
        const uint32_t sum = (uint32_t)*from;
        row[r].not_finite = (uint32_t)(*from++ >> 32);
        memcpy(&row[r].sum, &sum, sizeof sum);
        for (uint32_t i = 0; i < a->most; i++)
            *best++ = candidate_of(*from++);
    }
}

static tsr_status find(void *self, const struct tsr_tensor *logits, uint32_t most,
                       const float *inverse, struct tsr_candidate *best,
                       struct tsr_candidate_row *row, struct tsr_err *err)
{
    struct tsr_cuda                  *c = self;
    const struct tsr_cuda_candidates *k = &c->candidates;
    struct tsr_view                   v;
    TSR_CUDA_ALONE(c);
    tsr_status st = tsr_cuda_view(&v, logits, "CANDIDATES", "logits", TSR_F32, 0, 0, err);
    if (st != TSR_OK)
        return st;
    const struct layout l = layout_of(v.rows, v.cols, most);
    if (most == 0 || most > K_CANDIDATES || most > v.cols || v.rows > K_CANDIDATES_ROWS ||
        l.parts > K_CANDIDATES || bytes_of(&l) > k->bytes || l.out > k->host_bytes)
        return tsr_fail(err, TSR_E_INVAL,
                        "CANDIDATES: %u of each of %llu rows of %llu logits, more than reserve() "
                        "took memory for, or than there are",
                        most, U(v.rows), U(v.cols));
    struct k_candidates a = { .logits = v.p,
                              .ld = v.stride / 4,
                              .keys = k->address,
                              .heads = k->address + l.keys,
                              .out = k->address + l.keys + l.heads,
                              .vocab = (uint32_t)v.cols,
                              .rows = (uint32_t)v.rows,
                              .parts = (uint32_t)l.parts,
                              .most = most };
    memcpy(a.inverse, inverse, v.rows * sizeof *inverse);
    st = tsr_cuda_launch(c, NULL, KERNEL_k_candidates_part, l.parts, v.rows, 1, K_CANDIDATES, &a,
                         sizeof a, err);
    if (st == TSR_OK)
        st = tsr_cuda_launch(c, NULL, KERNEL_k_candidates, v.rows, 1, 1, K_CANDIDATES, &a, sizeof a,
                             err);
    if (st == TSR_OK)
        st = tsr_cuda_flush(c, err);
    c->busy = 0;
    if (st == TSR_OK)
        st = tsr_cuda_waited(c, c->api->get(c->device, k->host, a.out, l.out, err), err);
    if (st == TSR_OK)
        unpack(&a, k->host, best, row);
    return st;
}

const struct tsr_backend_candidates_v1 *tsr_cuda_candidates(void)
{
    static const struct tsr_backend_candidates_v1 table = { .struct_size = sizeof table,
                                                            .reserve = reserve,
                                                            .find = find };
    return &table;
}
