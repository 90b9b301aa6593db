/* linear_fast.c - LINEAR of many tokens under numerics: fast: the weight is widened and narrowed to 16
 * bits in pieces, the activations too, a library multiplies, and a last kernel brings the sums back.
 *
 * The type is F16, whose rows of activations are scaled by a power of two; it is BF16 where the weight
 * has BF16's range (BF16 itself, tessera.mx/1) and the device has matrix units for it. */
#include "backend.h"

#include <stdio.h>

#define PIECE_BYTES   (UINT64_C(128) << 20) /* of a weight in 16 bits */
#define LIBRARY_WORK  (UINT64_C(32) << 20)
#define FINISH_BLOCKS 65535u

/* Exact stay: few tokens, F32 weights, and int8 activations where the format has them, whose result
 * is not that of others. */
int tsr_cuda_is_fast(const struct tsr_cuda *c, const struct tsr_cuda_weight *w, uint32_t act,
                     uint64_t tokens)
{
    if (!c || !c->matmul || tokens <= TSR_CUDA_FEW || (act == TSR_ACT_A8 && w->a8))
        return 0;
    return w->k.kind != K_FLOAT || w->k.bits == 16;
}

struct places {
    uint64_t x, scale, weight, work, total;
    uint64_t ld; /* elements of a row of x and of the weight: 16 bytes are a whole number of them */
    uint64_t panels; /* of a piece */
};

static int take(uint64_t *total, uint64_t a, uint64_t b, uint64_t *place)
{
    uint64_t n;
    *place = *total;
    return !__builtin_mul_overflow(a, b, &n) && n < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (n + 255) / 256 * 256, total);
}

static int find_places(const struct tsr_cuda_weight *w, uint64_t tokens, struct places *p)
{
    uint64_t panels = cuda_ceil(w->k.rows, K_PANEL), panel;
    *p = (struct places){ .ld = cuda_ceil(w->k.cols, 8) * 8 };
    panel = p->ld * 2 * K_PANEL;
    p->panels = cuda_min(panels, PIECE_BYTES / panel ? PIECE_BYTES / panel : 1);
    p->panels = cuda_min(p->panels, 65535);
    return take(&p->total, tokens, p->ld * 2, &p->x) && take(&p->total, tokens, 4, &p->scale) &&
           take(&p->total, p->panels, panel, &p->weight) &&
           take(&p->total, 1, LIBRARY_WORK, &p->work);
}

uint64_t tsr_cuda_fast_work(const struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                            uint64_t tokens)
{
    struct places p;
    (void)c;
    return find_places(w, tokens, &p) ? p.total : 0;
}

/* Scales that are powers of two of 8 bits are those of tessera.mx/1: tables of tessera.table/1 are K_MX as
 * well, and lie in F16's range. */
static int wants_bf16(const struct tsr_cuda *c, const struct k_weight *w)
{
    return ((w->kind == K_FLOAT && w->bf16) || (w->kind == K_MX && w->scale_kind == K_SCALE_E8)) &&
           c->api->has_bf16(c->device);
}

/* Panels [first, first + n) of the weight and their columns of out. */
static tsr_status piece(struct tsr_cuda *c, const struct k_linear *a, const struct places *p,
                        uint64_t work, uint64_t first, uint64_t n, uint32_t bf16,
                        struct tsr_err *err)
{
    uint64_t       row = first * K_PANEL, rows = cuda_min(n * K_PANEL, a->w.rows - row);
    struct k_dense d = {
        .w = a->w, .y = work + p->weight, .ldy = p->ld, .first_panel = first, .bf16 = bf16
    };
    tsr_status st = tsr_cuda_launch(c, NULL, KERNEL_k_dense, cuda_ceil(p->ld, 128), n, 1, 256, &d,
                                    sizeof d, err);
    if (st != TSR_OK || (st = tsr_cuda_flush(c, err)) != TSR_OK)
        return st;
    struct tsr_cuda_matmul m = { .w = d.y,
                                 .x = work + p->x,
                                 .out = a->out + 4 * row,
                                 .ldw = p->ld,
                                 .ldx = p->ld,
                                 .ldo = a->ldo,
                                 .rows = rows,
                                 .cols = p->ld, /* columns past the end are 0 on both sides */
                                 .tokens = a->tokens,
                                 .work = work + p->work,
                                 .work_bytes = LIBRARY_WORK,
                                 .bf16 = (int)bf16 };
    return c->api->matmul(c->device, &m, err);
}

/* Logs an unsupported case once; the exact kernels run it then. */
static tsr_status not_this(struct tsr_cuda *c, const char *why)
{
    char line[400];
    (void)snprintf(line, sizeof line, "%s: a prompt's LINEAR runs on the exact kernels: %s",
                   c->text, why);
    if (c->matmul == 1)
        c->host->log(c->host->ctx, TSR_LOG_WARN, line);
    c->matmul = 2;
    return TSR_E_UNSUPPORTED;
}

tsr_status tsr_cuda_linear_fast(struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                                const struct k_linear *a, uint32_t act, struct tsr_err *err)
{
    struct places  p;
    char           text[320];
    struct tsr_err why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    uint32_t       bf16 = (uint32_t)wants_bf16(c, &w->k);
    uint64_t       work, panels = cuda_ceil(w->k.rows, K_PANEL);
    text[0] = '\0';
    if (!find_places(w, a->tokens, &p))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    tsr_status st = tsr_cuda_work(c, p.total, &work, &why);
    if (st == TSR_E_NOMEM) /* the exact kernels take far less */
        return not_this(c, text);
    if (st != TSR_OK)
        return tsr_fail(err, st, "%s", text);
    struct k_narrow x = { .x = a->x,
                          .ldx = a->ldx,
                          .y = work + p.x,
                          .ldy = p.ld,
                          .scale = work + p.scale,
                          .cols = w->k.cols,
                          .bf16 = bf16,
                          .a16 = act == TSR_ACT_A16 };
    st = tsr_cuda_launch(c, NULL, KERNEL_k_narrow, a->tokens, 1, 1, 256, &x, sizeof x, err);
    for (uint64_t at = 0; at < panels && st == TSR_OK; at += p.panels) {
        st = piece(c, a, &p, work, at, cuda_min(p.panels, panels - at), bf16, &why);
        if (st == TSR_E_UNSUPPORTED)
            return not_this(c, text);
        if (st != TSR_OK)
            return tsr_fail(err, st, "%s", text);
    }
    if (st != TSR_OK || (bf16 && !a->bias))
        return st;
    struct k_finish f = { .out = a->out,
                          .ldo = a->ldo,
                          .scale = work + p.scale,
                          .bias = a->bias,
                          .cols = w->k.rows,
                          .tokens = a->tokens };
    return tsr_cuda_launch(c, NULL, KERNEL_k_finish,
                           cuda_min(cuda_ceil(a->tokens * w->k.rows, 256), FINISH_BLOCKS), 1, 1,
                           256, &f, sizeof f, err);
}
