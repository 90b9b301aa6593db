/* compensation.c - the table of tessera/draft/compensate.h: residuals in pinned memory of the host, which the kernels
 * of compensation.cu read over the bus; checks, arguments and launches. */
#include "../tensor/floors.h"
#include "../tensor/lists.h"
#include "backend.h"
#include "tessera/draft/compensate.h"

#include <string.h>

_Static_assert(K_CHUNK == TSR_COMPENSATE_CHUNK && K_BUCKETS == TSR_COMPENSATE_BUCKETS &&
                   K_RESIDUALS == TSR_COMPENSATE_LINEARS,
               "k_args.h has the constants of the interface");

#define U(x) ((unsigned long long)(x))
/* Rows on their way into pinned memory, at a time at most. */
#define STAGED (UINT64_C(1) << 20)
/* The grid's second axis ends here: more lists go in parts. */
#define LISTS_MOST UINT64_C(65535)

struct residual {
    uint64_t codes, scales; /* addresses: pinned, device */
    uint64_t stride, inputs, outputs;
    uint32_t bits;
};

/* ---- residuals ------------------------------------------------------------------------------ */

static void residual_free(void *self, void *residual)
{
    struct tsr_cuda *c = self;
    struct residual *r = residual;
    if (!r)
        return;
    TSR_CUDA_ALONE(c);
    (void)tsr_cuda_flush(c, NULL); /* queued launches may read it */
    c->api->release(c->device, r->codes, TSR_CUDA_MAPPED);
    c->api->release(c->device, r->scales, TSR_CUDA_DEVICE);
    c->host->release(c->host->ctx, r, sizeof *r);
}

static tsr_status check_residual(const struct tsr_residual_desc *d, struct tsr_err *err)
{
    const char *name = d->name ? d->name : "?";
    uint64_t    bytes;
    if (d->bits != 2 && d->bits != 4 && d->bits != 8 && d->bits != 16)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "residual '%s': %u bits; 2, 4, 8 and 16 are read",
                        name, d->bits);
    if (d->inputs == 0 || d->outputs == 0 || d->inputs > UINT32_MAX || d->outputs > UINT32_MAX)
        return tsr_fail(err, TSR_E_INVAL, "residual '%s': %llu by %llu channels", name,
                        U(d->inputs), U(d->outputs));
    if (!d->codes || d->stride % 64 || d->stride < cuda_ceil(d->outputs * d->bits, 8) ||
        __builtin_mul_overflow(d->inputs, d->stride + K_PIECE, &bytes) || bytes > PTRDIFF_MAX ||
        (d->bits != 16) != !!d->scales)
        return tsr_fail(err, TSR_E_INVAL,
                        "residual '%s': rows of %llu codes of %u bits cannot lie %llu bytes apart, "
                        "or codes or scales are missing",
                        name, U(d->outputs), d->bits, U(d->stride));
    return d->scales ? tsr_tensor_scales(d->scales, d->outputs, name, err) : TSR_OK;
}

/* All rows, `stride` bytes apart, to the pinned memory at r->codes. */
static tsr_status put_rows(struct tsr_cuda *c, const struct tsr_residual_desc *d,
                           const struct residual *r, struct tsr_err *err)
{
    const uint64_t bytes = cuda_ceil(d->outputs * d->bits, 8);
    const uint64_t rows = cuda_min(d->inputs, cuda_ceil(STAGED, r->stride));
    uint8_t       *stage = c->host->alloc(c->host->ctx, rows * r->stride, 64);
    tsr_status     st = TSR_OK;
    if (!stage)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes of residuals",
                        U(rows * r->stride));
    memset(stage, 0, rows * r->stride);
    for (uint64_t i = 0; i < d->inputs && st == TSR_OK; i += rows) {
        const uint64_t n = cuda_min(rows, d->inputs - i);
        for (uint64_t j = 0; j < n; j++)
            memcpy(stage + j * r->stride, (const uint8_t *)d->codes + (i + j) * d->stride, bytes);
        st = c->api->put(c->device, r->codes + i * r->stride, stage, n * r->stride, err);
    }
    c->host->release(c->host->ctx, stage, rows * r->stride);
    return st;
}

static tsr_status put_residual(struct tsr_cuda *c, const struct tsr_residual_desc *d,
                               struct residual *r, struct tsr_err *err)
{
    TSR_CUDA_ALONE(c);
    tsr_status st = tsr_cuda_flush(c, err);
    if (st == TSR_OK)
        st = c->api->alloc(c->device, d->inputs * r->stride, TSR_CUDA_MAPPED, &r->codes, err);
    if (st == TSR_OK)
        st = put_rows(c, d, r, err);
    if (st == TSR_OK && d->scales)
        st = c->api->alloc(c->device, d->outputs * 2, TSR_CUDA_DEVICE, &r->scales, err);
    if (st == TSR_OK && d->scales)
        st = c->api->put(c->device, r->scales, d->scales, d->outputs * 2, err);
    return st;
}

static tsr_status residual_load(void *self, const struct tsr_residual_desc *d, void **residual,
                                struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    tsr_status       st = check_residual(d, err);
    if (st != TSR_OK)
        return st;
    struct residual *r = c->host->alloc(c->host->ctx, sizeof *r, 64);
    if (!r)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a residual");
    *r = (struct residual){ .stride =
                                cuda_ceil(cuda_ceil(d->outputs * d->bits, 8), K_PIECE) * K_PIECE,
                            .inputs = d->inputs,
                            .outputs = d->outputs,
                            .bits = d->bits };
    st = put_residual(c, d, r, err);
    if (st != TSR_OK) {
        residual_free(c, r);
        return st;
    }
    *residual = r;
    return TSR_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The inputs and lists of both operations. */
struct lists {
    struct tsr_view x, rows, list;
    uint64_t        n;
};

static void note_written(struct tsr_cuda *c, void *stream, const struct tsr_tensor *t,
                         const struct tsr_view *v)
{
    struct tsr_cuda_buffer *b = t->buffer;
    b->written = 1;
    if (stream)
        tsr_cuda_kept_forget(c);
    else
        tsr_cuda_kept_wrote(c, v->p, v->p + (v->rows - 1) * v->stride + 4 * v->cols);
}

static tsr_status view_lists(struct tsr_cuda *c, const struct tsr_tensor *x,
                             const struct tsr_tensor *rows, const struct tsr_tensor *list,
                             const char *op, struct lists *l, struct tsr_err *err)
{
    const uint32_t *p = NULL;
    uint64_t        stride;
    *l = (struct lists){ 0 };
    tsr_status st = tsr_cuda_view(&l->x, x, op, "x", TSR_F32, 0, 0, err);
    l->n = l->x.rows;
    if (st == TSR_OK && rows) {
        st = tsr_cuda_view(&l->rows, rows, op, "rows", TSR_U32, 1, 0, err);
        if (st == TSR_OK)
            st = tsr_cuda_indices(c, rows, &p, &stride, err);
        l->n = l->rows.cols;
    }
    for (uint64_t i = 0; p && i < l->n && st == TSR_OK; i++)
        if (p[i] >= l->x.rows)
            st = tsr_fail(err, TSR_E_INVAL, "%s: row %u is not below %llu", op, p[i], U(l->x.rows));
    if (st == TSR_OK)
        st = tsr_cuda_view(&l->list, list, op, "list", TSR_U32, l->n, 0, err);
    if (st == TSR_OK && l->x.cols > UINT32_MAX)
        st = tsr_fail(err, TSR_E_INVAL, "%s: %llu channels", op, U(l->x.cols));
    return st;
}

static tsr_status select_channels(void *self, void *stream, const struct tsr_select_op *op,
                                  struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    struct k_select  k = { .per = op->k };
    struct lists     l;
    TSR_CUDA_ALONE(c);
    tsr_status st = view_lists(c, op->x, op->rows, op->list, "SELECT", &l, err);
    if (st == TSR_OK)
        st = tsr_tensor_floors(k.below, op->floors, err);
    if (st != TSR_OK)
        return st;
    uint64_t room = l.x.cols / K_CHUNK * op->k + l.x.cols % K_CHUNK * op->k / K_CHUNK;
    if (op->k == 0 || op->k > K_CHUNK || l.list.cols < 1 + room)
        return tsr_fail(err, TSR_E_INVAL,
                        "SELECT: %u of 1024 from %llu channels do not fit a list of %llu words",
                        op->k, U(l.x.cols), U(l.list.cols));
    k.ldx = l.x.stride / 4;
    k.ldl = l.list.stride / 4;
    k.cols = (uint32_t)l.x.cols;
    for (uint64_t t = 0; t < l.n && st == TSR_OK; t += LISTS_MOST) {
        k.x = l.x.p + (op->rows ? 0 : t * l.x.stride);
        k.rows = op->rows ? l.rows.p + 4 * t : 0;
        k.list = l.list.p + t * l.list.stride;
        st = tsr_cuda_launch(c, stream, KERNEL_k_select, cuda_ceil(k.cols, K_CHUNK),
                             cuda_min(LISTS_MOST, l.n - t), 1, K_CHUNK, &k, sizeof k, err);
    }
    note_written(c, stream, op->list, &l.list);
    return st;
}

static tsr_status view_linears(const struct tsr_compensate_op *op, const struct lists *l,
                               struct k_compensate *k, struct tsr_view *out, struct tsr_err *err)
{
    uint64_t pieces = 0;
    for (uint32_t j = 0; j < op->n; j++) {
        const struct residual *r = op->residual[j];
        if (!r || r->inputs != l->x.cols)
            return tsr_fail(err, TSR_E_INVAL,
                            "COMPENSATE: residuals of %llu input channels for %llu columns",
                            U(r ? r->inputs : 0), U(l->x.cols));
        tsr_status st = tsr_cuda_view(&out[j], op->out[j], "COMPENSATE", "out", TSR_F32, l->x.rows,
                                      r->outputs, err);
        if (st == TSR_OK)
            st = tsr_tensor_apart(op->out[j], op->x, 0, "COMPENSATE", err);
        if (st != TSR_OK)
            return st;
        k->linear[j] = (struct k_residual){ .codes = r->codes,
                                            .stride = r->stride,
                                            .outputs = r->outputs,
                                            .scales = r->scales,
                                            .ldo = out[j].stride / 4,
                                            .bits = r->bits,
                                            .first = (uint32_t)pieces };
        pieces += r->stride / K_PIECE;
    }
    if (pieces > INT32_MAX)
        return tsr_fail(err, TSR_E_INVAL, "COMPENSATE: rows of %llu bytes", U(pieces * K_PIECE));
    k->n = op->n;
    k->pieces = (uint32_t)pieces;
    return TSR_OK;
}

/* Lists of the host, which no operation has written since.  Those of select() are right as they are; of a channel that
 * is not there the kernel makes NaN. */
static tsr_status check_lists(struct tsr_cuda *c, const struct tsr_tensor *list,
                              const struct lists *l, struct tsr_err *err)
{
    const struct tsr_cuda_buffer *b = list->buffer;
    const uint32_t               *p = NULL;
    uint64_t                      stride = 0;
    if (b->written)
        return TSR_OK;
    tsr_status st = tsr_cuda_indices(c, list, &p, &stride, err);
    return st == TSR_OK ? tsr_tensor_lists(p, stride, l->n, l->list.cols, l->x.cols, err) : st;
}

static tsr_status compensate(void *self, void *stream, const struct tsr_compensate_op *op,
                             struct tsr_err *err)
{
    struct tsr_cuda    *c = self;
    struct k_compensate k = { 0 };
    struct tsr_view     out[K_RESIDUALS];
    struct lists        l;
    if (op->n == 0 || op->n > K_RESIDUALS)
        return tsr_fail(err, TSR_E_INVAL, "COMPENSATE: %u linears, 1 to %u are allowed", op->n,
                        K_RESIDUALS);
    TSR_CUDA_ALONE(c);
    tsr_status st = view_lists(c, op->x, op->rows, op->list, "COMPENSATE", &l, err);
    if (st == TSR_OK)
        st = view_linears(op, &l, &k, out, err);
    if (st == TSR_OK)
        st = check_lists(c, op->list, &l, err);
    if (st != TSR_OK)
        return st;
    /* without a choice as many as multiprocessors: fewer reached less of the rate of the bus (docs/lab/gpu) */
    const uint64_t units = c->api->units(c->device);
    const uint64_t asked = TSR_HAS(struct tsr_compensate_op, op, blocks) ? op->blocks : 0;
    const uint64_t most = asked ? cuda_min(asked, units) : units;
    k.ldx = l.x.stride / 4;
    k.ldl = l.list.stride / 4;
    k.room = (uint32_t)cuda_min(l.list.cols - 1, UINT32_MAX);
    k.cols = (uint32_t)l.x.cols;
    for (uint64_t t = 0; t < l.n && st == TSR_OK; t += LISTS_MOST) {
        const uint64_t at = op->rows ? 0 : t;
        k.x = l.x.p + at * l.x.stride;
        k.rows = op->rows ? l.rows.p + 4 * t : 0;
        k.list = l.list.p + t * l.list.stride;
        for (uint32_t j = 0; j < op->n; j++)
            k.linear[j].out = out[j].p + at * out[j].stride;
        st = tsr_cuda_launch(c, stream, KERNEL_k_compensate, cuda_min(k.pieces, most),
                             cuda_min(LISTS_MOST, l.n - t), 1, 256, &k, sizeof k, err);
    }
    for (uint32_t j = 0; j < op->n; j++)
        note_written(c, stream, op->out[j], &out[j]);
    return st;
}

static uint32_t most_blocks(const void *self)
{
    const struct tsr_cuda *c = self;
    return c->api->units(c->device);
}

const struct tsr_backend_compensate_v1 *tsr_cuda_compensation(void)
{
    static const struct tsr_backend_compensate_v1 table = { .struct_size = sizeof table,
                                                            .copies = 1, /* pinned ones */
                                                            .residual_load = residual_load,
                                                            .residual_free = residual_free,
                                                            .select = select_channels,
                                                            .compensate = compensate,
                                                            .most_blocks = most_blocks };
    return &table;
}
