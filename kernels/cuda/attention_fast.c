/* attention_fast.c - ATTENTION of prompts under numerics: fast and auto: one launch of flash.cu, which needs no scratch. */
#include "backend.h"

#include <stdio.h>

#define TILES_MOST 65535u /* of a launch */

struct flash_kernel {
    uint32_t             dim; /* of a head, at most */
    enum tsr_cuda_kernel kernel;
    uint32_t             shared; /* bytes */
};

int tsr_cuda_is_prompt(const struct tsr_op_parts *p)
{
    const uint32_t *span = p->index;
    uint64_t        runs = 1;
    for (uint64_t t = 1; t < p->out.rows; t++)
        runs += span[t * p->index_stride] != span[(t - 1) * p->index_stride];
    return p->out.rows >= 2 * runs;
}

/* The kernel for heads of `dim` columns; NULL: there is none. */
static const struct flash_kernel *kernel_of(uint32_t dim)
{
    static const struct flash_kernel all[] = {
        { 64, KERNEL_k_flash64, K_FLASH_SHARED(64u) },
        { 96, KERNEL_k_flash96, K_FLASH_SHARED(96u) },
        { 128, KERNEL_k_flash128, K_FLASH_SHARED(128u) },
        { 256, KERNEL_k_flash256, K_FLASH_SHARED(256u) },
    };
    for (unsigned i = 0; dim % 8 == 0 && i < sizeof all / sizeof *all; i++)
        if (dim <= all[i].dim)
            return &all[i];
    return NULL;
}

/* What keeps a prompt on the exact kernels; NULL: nothing. */
static const char *obstacle(const struct tsr_cuda *c, const struct k_attention *a)
{
    const struct flash_kernel *f = kernel_of(a->head_dim);
    const uint32_t             copy = a->dtype == TSR_F16 ? 16 : 4;
    if (a->dtype != TSR_F16 && a->dtype != TSR_I8)
        return "its cache is F32; F16 and int8 are taken";
    if (!f)
        return "heads must have a multiple of 8 columns, at most 256";
    if (a->scale == 0.0f)
        return "its scale is 0";
    if (c->api->shared(c->device) < f->shared)
        return "the device has too little shared memory";
    if (a->k_copy != copy || a->v_copy != copy)
        return "heads in the cache are not aligned: to 16 bytes in F16, to 4 in int8";
    return NULL;
}

int tsr_cuda_is_flash(struct tsr_cuda *c, const struct k_attention *a,
                      const struct tsr_op_parts *parts)
{
    char        line[400];
    const char *why;
    if (!c->tensor || parts->out.rows <= TSR_CUDA_FEW || !tsr_cuda_is_prompt(parts))
        return 0;
    why = obstacle(c, a);
    if (why && !c->flash_logged) {
        (void)snprintf(line, sizeof line, "%s: a prompt's ATTENTION runs on the exact kernels: %s",
                       c->text, why);
        c->host->log(c->host->ctx, c->fast ? TSR_LOG_WARN : TSR_LOG_INFO, line);
        c->flash_logged = 1;
    }
    return !why;
}

tsr_status tsr_cuda_flash(struct tsr_cuda *c, void *stream, struct k_attention *a, uint64_t tokens,
                          struct tsr_err *err)
{
    const uint32_t group = a->heads / a->kv_heads;
    tsr_status     st = TSR_OK;
    a->chunks = (uint32_t)cuda_ceil(group, K_FLASH_ROWS);
    a->share = (uint32_t)cuda_ceil(group, a->chunks);
    a->tile = K_FLASH_ROWS / a->share;
    const uint64_t part = (uint64_t)TILES_MOST * a->tile;
    for (uint64_t t = 0; t < tokens && st == TSR_OK; t += part) {
        const uint64_t n = cuda_min(part, tokens - t);
        a->first = (uint32_t)t;
        a->tokens = (uint32_t)n;
        st = tsr_cuda_launch(c, stream, kernel_of(a->head_dim)->kernel, 1,
                             (uint64_t)a->kv_heads * a->chunks, cuda_ceil(n, a->tile),
                             K_FLASH_THREADS, a, sizeof *a, err);
    }
    return st;
}
