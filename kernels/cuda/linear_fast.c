/* linear_fast.c - LINEAR of many tokens under numerics: fast and auto: the weight is widened and narrowed to 16
 * bits in pieces, the activations too, a library multiplies, and a last kernel brings the sums back.
 *
 * The type is F16, whose rows of activations are scaled by a power of two; it is BF16 where the weight
 * has BF16's range (BF16 itself, tessera.mx/1) and the device has matrix units for it. */
#include "backend.h"

#include <stdio.h>

#define PIECE_BYTES  (UINT64_C(128) << 20) /* of a weight in 16 bits */
#define LIBRARY_WORK (UINT64_C(32) << 20)
/* Measured on an H100 (docs/lab/gpu): tokens up to which k_half.h may be faster than the library, and from which on
 * the library is faster than int8. */
#define HALF_TOKENS 64u
#define A8_TOKENS   256u

/* Whether k_half.h has the weight: groups begin on half steps, outliers have no place in it, tables of rows fit. */
static int has_half(const struct tsr_cuda *c, const struct k_weight *w)
{
    if (!c->api->has_bf16(c->device) || c->api->shared(c->device) < K_HALF_SHARED || !w->regular ||
        w->outliers)
        return 0;
    return w->kind != K_LUT || w->bits <= K_HALF_LUT;
}

/* Whether the exact kernels of int8 activations read a weight for every four tokens, or by digits. */
static int has_slow_a8(const struct tsr_cuda_weight *w)
{
    return w->llm || w->k.digits > 1 || !w->k.regular;
}

/* Where k_half.h or the library take less time than the exact kernels: those of int8 activations are as fast as the
 * first, and only the library is faster, with many tokens. */
int tsr_cuda_is_fast(const struct tsr_cuda *c, const struct tsr_cuda_weight *w, uint32_t act,
                     uint64_t tokens)
{
    if (!c || !c->tensor || tokens <= TSR_CUDA_FEW || (w->k.kind == K_FLOAT && w->k.bits == 32))
        return 0;
    if (act == TSR_ACT_A8 && w->a8 && !c->fast)
        return 0;
    if (act == TSR_ACT_A8 && w->a8 && !has_slow_a8(w))
        return c->matmul && tokens >= A8_TOKENS;
    return c->matmul || has_half(c, &w->k);
}

/* The formats that k_half.h has kernels for: half.cu. */
enum half_set { HALF_INT4, HALF_INT, HALF_TABLE, HALF_FLOAT, HALF_SETS };
static enum half_set half_set_of(const struct k_weight *w)
{
    if (w->kind == K_FLOAT)
        return HALF_FLOAT;
    if (w->kind != K_INT)
        return HALF_TABLE;
    return w->bits == 4 && w->scale_kind == K_SCALE_F16 && !w->affine ? HALF_INT4 : HALF_INT;
}

/* Few blocks of k_half.h take as long as many, while the library waits for a weight to be widened: rows for each
 * multiprocessor from which on k_half.h is faster, of up to 16 and 64 tokens, measured on an H100 and an H200
 * (docs/lab/gpu). */
static int wants_library(const struct tsr_cuda *c, const struct k_weight *w, uint64_t tokens)
{
    static const uint64_t least[2][HALF_SETS] = { { 16, 62, 62, 31 }, { 31, 62, UINT64_MAX, 62 } };
    if (!c->matmul)
        return 0;
    if (!has_half(c, w) || tokens > HALF_TOKENS)
        return 1;
    return w->rows / c->api->units(c->device) < least[tokens > 16][half_set_of(w)];
}

struct places {
    uint64_t x, scale, weight, work, total;
    uint64_t ld;     /* elements of a row of x and of the weight: whole steps */
    uint64_t panels; /* of a piece; 0: without the library */
};

static int take(uint64_t *total, uint64_t a, uint64_t b, uint64_t *place)
{
    uint64_t n;
    *place = *total;
    return !__builtin_mul_overflow(a, b, &n) && n < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (n + 255) / 256 * 256, total);
}

static int find_places(const struct tsr_cuda *c, const struct tsr_cuda_weight *w, uint64_t tokens,
                       struct places *p)
{
    uint64_t panels = cuda_ceil(w->k.rows, K_PANEL), panel;
    *p = (struct places){ .ld = cuda_ceil(w->k.cols, K_STEP) * K_STEP };
    if (!take(&p->total, tokens, p->ld * 2, &p->x) || !take(&p->total, tokens, 4, &p->scale))
        return 0;
    if (!wants_library(c, &w->k, tokens))
        return 1;
    panel = p->ld * 2 * K_PANEL;
    p->panels = cuda_min(panels, PIECE_BYTES / panel ? PIECE_BYTES / panel : 1);
    p->panels = cuda_min(p->panels, 65535);
    return take(&p->total, p->panels, panel, &p->weight) &&
           take(&p->total, 1, LIBRARY_WORK, &p->work);
}

uint64_t tsr_cuda_fast_work(const struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                            uint64_t tokens)
{
    struct places p;
    return find_places(c, w, tokens, &p) ? p.total : 0;
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
    tsr_status st = tsr_cuda_launch(c, NULL, KERNEL_k_dense, cuda_ceil(p->ld, K_DENSE_COLS), n, 1,
                                    256, &d, sizeof d, err);
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

/* By the library, piece by piece, and a last kernel for what it leaves to do. */
static tsr_status by_library(struct tsr_cuda *c, const struct k_linear *a, const struct places *p,
                             uint64_t work, uint32_t bf16, struct tsr_err *err)
{
    char           text[320];
    struct tsr_err why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    const uint64_t panels = cuda_ceil(a->w.rows, K_PANEL);
    text[0] = '\0';
    for (uint64_t at = 0; at < panels; at += p->panels) {
        tsr_status st = piece(c, a, p, work, at, cuda_min(p->panels, panels - at), bf16, &why);
        if (st == TSR_E_UNSUPPORTED)
            return not_this(c, text);
        if (st != TSR_OK)
            return tsr_fail(err, st, "%s", text);
    }
    if (bf16 && !a->bias)
        return TSR_OK;
    struct k_finish f = { .out = a->out,
                          .ldo = a->ldo,
                          .scale = work + p->scale,
                          .bias = a->bias,
                          .cols = a->w.rows,
                          .tokens = a->tokens };
    return tsr_cuda_launch(c, NULL, KERNEL_k_finish, cuda_ceil(a->w.rows, 1024), a->tokens, 1, 256,
                           &f, sizeof f, err);
}

/* By k_half.h. */
struct half_choice {
    enum tsr_cuda_kernel kernel;
    uint64_t             rows, tokens;
    uint32_t             threads;
};

static struct half_choice choose_half(const struct tsr_cuda *c, const struct k_weight *w,
                                      uint64_t tokens)
{
    static const enum tsr_cuda_kernel by[3][HALF_SETS] = {
        { KERNEL_k_half16_int4, KERNEL_k_half16_int, KERNEL_k_half16_table, KERNEL_k_half16_float },
        { KERNEL_k_half64_int4, KERNEL_k_half64_int, KERNEL_k_half64_table, KERNEL_k_half64_float },
        { KERNEL_k_half128_int4, KERNEL_k_half128_int, KERNEL_k_half128_table,
          KERNEL_k_half128_float },
    };
    const enum half_set set = half_set_of(w);
    const uint64_t      blocks = cuda_ceil(w->rows, 128) * cuda_ceil(tokens, 128);
    const uint32_t      threads = set == HALF_INT4 ? 256 : 128;
    if (tokens <= 16)
        return (struct half_choice){ by[0][set], 64, 16, 256 };
    if (tokens <= 64 || blocks * 2 < c->api->units(c->device))
        return (struct half_choice){ by[1][set], 64, 64, threads };
    return (struct half_choice){ by[2][set], 128, 128, 128 };
}

static tsr_status by_half(struct tsr_cuda *c, const struct k_linear *a, const struct places *p,
                          uint64_t work, uint32_t bf16, struct tsr_err *err)
{
    const struct k_half_linear h = { .w = a->w,
                                     .x = work + p->x,
                                     .ldx = p->ld,
                                     .scale = work + p->scale,
                                     .out = a->out,
                                     .ldo = a->ldo,
                                     .bias = a->bias,
                                     .tokens = a->tokens,
                                     .bf16 = bf16 };
    const struct half_choice   k = choose_half(c, &a->w, a->tokens);
    return tsr_cuda_launch(c, NULL, k.kernel, cuda_ceil(a->w.rows, k.rows),
                           cuda_ceil(a->tokens, k.tokens), 1, k.threads, &h, sizeof h, err);
}

/* x in 16 bits in the scratch, if it is not there from the LINEAR before (kept.c). */
static tsr_status narrow(struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                         const struct k_linear *a, uint32_t act, uint32_t bf16,
                         const struct places *p, uint64_t *work, struct tsr_err *err)
{
    struct k_quantize kept = { .x = a->x,
                               .ldx = a->ldx,
                               .q = c->work + p->x,
                               .ldq = p->ld,
                               .sa = c->work + p->scale,
                               .tokens = a->tokens,
                               .cols = (uint32_t)w->k.cols,
                               .segment = bf16,
                               .blocks = act == TSR_ACT_A16 };
    *work = c->work;
    if (p->total <= c->work_bytes && tsr_cuda_kept_has(c, KERNEL_k_narrow, &kept))
        return TSR_OK;
    tsr_status st = tsr_cuda_work(c, p->total, work, err);
    if (st != TSR_OK)
        return st;
    const struct k_narrow n = { .x = a->x,
                                .ldx = a->ldx,
                                .y = *work + p->x,
                                .ldy = p->ld,
                                .scale = *work + p->scale,
                                .cols = w->k.cols,
                                .bf16 = bf16,
                                .a16 = act == TSR_ACT_A16 };
    kept.q = n.y;
    kept.sa = n.scale;
    st = tsr_cuda_launch(c, NULL, KERNEL_k_narrow, a->tokens, 1, 1, 256, &n, sizeof n, err);
    if (st == TSR_OK)
        tsr_cuda_kept_keep(c, KERNEL_k_narrow, &kept);
    return st;
}

tsr_status tsr_cuda_linear_fast(struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                                const struct k_linear *a, uint32_t act, struct tsr_err *err)
{
    struct places  p;
    char           text[320];
    struct tsr_err why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    const uint32_t bf16 = (uint32_t)wants_bf16(c, &w->k);
    const int      library = wants_library(c, &w->k, a->tokens);
    uint64_t       work;
    text[0] = '\0';
    if (!find_places(c, w, a->tokens, &p))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    tsr_status st = narrow(c, w, a, act, bf16, &p, &work, &why);
    if (st == TSR_E_NOMEM) /* the exact kernels take far less */
        return not_this(c, text);
    if (st != TSR_OK)
        return tsr_fail(err, st, "%s", text);
    st = library ? by_library(c, a, &p, work, bf16, err) : TSR_E_UNSUPPORTED;
    return st == TSR_E_UNSUPPORTED && has_half(c, &w->k) ? by_half(c, a, &p, work, bf16, err) : st;
}
