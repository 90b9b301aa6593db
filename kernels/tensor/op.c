/* op.c - one check for every operation; op.h.  Each function below is one entry of the list in
 * tessera/backend.h, in its order. */
#include "op.h"

#include "tessera/kv_cache.h"

#define U(x) ((unsigned long long)(x))

/* The operation that is being checked, by its name in sentences. */
struct check {
    const struct tsr_op_source *s;
    const struct tsr_op        *op;
    const char                 *name;
    struct tsr_op_parts        *p;
    struct tsr_err             *err;
};

tsr_status tsr_op_part(const struct tsr_op_source *s, const struct tsr_tensor *t, const char *op,
                       const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                       struct tsr_op_part *part, struct tsr_err *err)
{
    uint64_t stride = 0;
    if (!t || !t->buffer)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is missing", op, what);
    tsr_status st =
        tsr_tensor_check(t, s->buffer_bytes(t->buffer), op, what, dtype, rows, cols, &stride, err);
    if (st == TSR_OK)
        *part = (struct tsr_op_part){ t->buffer, t->offset, stride, t->rows, t->cols };
    return st;
}

static tsr_status check_out(const struct check *c, uint64_t rows, uint64_t cols)
{
    return tsr_op_part(c->s, c->op->out, c->name, "out", TSR_F32, rows, cols, &c->p->out, c->err);
}

/* Input i, which does not overlap `out`, or equals it if `same` is set. */
static tsr_status check_in(const struct check *c, int i, const char *what, uint32_t dtype,
                           uint64_t rows, uint64_t cols, int same)
{
    tsr_status st =
        tsr_op_part(c->s, c->op->in[i], c->name, what, dtype, rows, cols, &c->p->in[i], c->err);
    return st != TSR_OK ? st : tsr_tensor_apart(c->op->out, c->op->in[i], same, c->name, c->err);
}

/* Same as check_in(), if the input exists. */
static tsr_status check_optional(const struct check *c, int i, const char *what, uint64_t rows,
                                 uint64_t cols)
{
    return c->op->in[i] ? check_in(c, i, what, TSR_F32, rows, cols, 0) : TSR_OK;
}

static tsr_status get_indices(const struct check *c, int i)
{
    return c->s->indices(c->s->self, c->op->in[i], &c->p->index, &c->p->index_stride, c->err);
}

static tsr_status get_weight(const struct check *c, uint64_t *rows, uint64_t *cols)
{
    if (!c->op->weight)
        return tsr_fail(c->err, TSR_E_INVAL, "%s: the weight is NULL", c->name);
    c->s->weight_shape(c->op->weight, rows, cols);
    return TSR_OK;
}

/* ---- products ---------------------------------------------------------------------- */

static tsr_status check_linear(const struct check *c)
{
    uint64_t   rows = 0, cols = 0;
    tsr_status st = get_weight(c, &rows, &cols);
    if (st != TSR_OK)
        return st;
    if (c->op->act > TSR_ACT_A8)
        return tsr_fail(c->err, TSR_E_INVAL, "LINEAR: act %u is not one of f32, a16, a8",
                        c->op->act);
    if ((st = check_out(c, 0, rows)) != TSR_OK ||
        (st = check_in(c, 0, "in", TSR_F32, c->p->out.rows, cols, 0)) != TSR_OK)
        return st;
    return check_optional(c, 1, "bias", 1, rows);
}

static tsr_status check_embed(const struct check *c)
{
    uint64_t   rows = 0, cols = 0;
    tsr_status st = get_weight(c, &rows, &cols);
    if (st != TSR_OK || (st = check_out(c, 0, cols)) != TSR_OK ||
        (st = check_in(c, 0, "ids", TSR_U32, 1, c->p->out.rows, 0)) != TSR_OK ||
        (st = get_indices(c, 0)) != TSR_OK)
        return st;
    for (uint64_t t = 0; t < c->p->out.rows; t++)
        if (c->p->index[t] >= rows)
            return tsr_fail(c->err, TSR_E_INVAL, "EMBED: id %u of token %llu is not below %llu",
                            c->p->index[t], U(t), U(rows));
    return TSR_OK;
}

/* ---- row by row -------------------------------------------------------------------- */

static tsr_status check_norm(const struct check *c)
{
    uint64_t   n = c->p->out.cols;
    tsr_status st;
    if (c->op->norm > TSR_NORM_LAYER)
        return tsr_fail(c->err, TSR_E_INVAL, "NORM: norm %u is not one of RMS, LAYER", c->op->norm);
    if ((st = check_in(c, 1, "gain", TSR_F32, 1, n, 0)) != TSR_OK)
        return st;
    return check_optional(c, 2, "bias", 1, n);
}

static tsr_status check_rope(const struct check *c)
{
    const struct tsr_op *op = c->op;
    tsr_status           st;
    if (op->func > TSR_ROPE_ADJACENT)
        return tsr_fail(c->err, TSR_E_INVAL, "ROPE: func %u is not one of HALVES, ADJACENT",
                        op->func);
    if (op->rotary_dim == 0 || op->rotary_dim % 2 || op->rotary_dim > op->head_dim)
        return tsr_fail(c->err, TSR_E_INVAL, "ROPE: rotary_dim %u must be even, 2 to head_dim %u",
                        op->rotary_dim, op->head_dim);
    if ((uint64_t)op->heads * op->head_dim != c->p->out.cols)
        return tsr_fail(c->err, TSR_E_INVAL, "ROPE: %u heads of %u are not %llu columns", op->heads,
                        op->head_dim, U(c->p->out.cols));
    uint64_t half = op->rotary_dim / 2;
    if ((st = check_in(c, 1, "cos", TSR_F32, c->p->out.rows, half, 0)) != TSR_OK)
        return st;
    return check_in(c, 2, "sin", TSR_F32, c->p->out.rows, half, 0);
}

static tsr_status check_act(const struct check *c)
{
    if (c->op->func > TSR_FUNC_CLAMPED)
        return tsr_fail(c->err, TSR_E_INVAL, "ACT: func %u is unknown", c->op->func);
    if (c->op->func == TSR_FUNC_CLAMPED) {
        if (!(c->op->softcap > 0.0f))
            return tsr_fail(c->err, TSR_E_INVAL, "ACT: the limit softcap is %g, wanted above 0",
                            (double)c->op->softcap);
        return check_in(c, 1, "in1", TSR_F32, c->p->out.rows, c->p->out.cols, 0);
    }
    return check_optional(c, 1, "in1", c->p->out.rows, c->p->out.cols);
}

static tsr_status check_hadamard(const struct check *c)
{
    const struct tsr_tensor *base = c->op->in[1];
    uint64_t                 b = base ? base->rows : 1, n = c->op->head_dim;
    if (b == 0 || b > TSR_HADAMARD_BASE)
        return tsr_fail(c->err, TSR_E_INVAL, "HADAMARD: in1 has %llu rows, wanted 1 to %d", U(b),
                        TSR_HADAMARD_BASE);
    if (n == 0 || n % b || (n / b & (n / b - 1)) != 0)
        return tsr_fail(c->err, TSR_E_INVAL,
                        "HADAMARD: head_dim %llu is not a power of two times the %llu rows of in1",
                        U(n), U(b));
    if (c->p->out.cols % n)
        return tsr_fail(c->err, TSR_E_INVAL, "HADAMARD: %llu columns are no runs of %llu",
                        U(c->p->out.cols), U(n));
    return base ? check_in(c, 1, "in1", TSR_F32, b, b, 0) : TSR_OK;
}

/* out and in0 of one shape, in place allowed; then the requirements of the kind. */
static tsr_status check_rows(const struct check *c)
{
    tsr_status st;
    if ((st = check_out(c, 0, 0)) != TSR_OK ||
        (st = check_in(c, 0, "in0", TSR_F32, c->p->out.rows, c->p->out.cols, 1)) != TSR_OK)
        return st;
    switch (c->op->kind) {
    case TSR_OP_NORM:
        return check_norm(c);
    case TSR_OP_ROPE:
        return check_rope(c);
    case TSR_OP_ACT:
        return check_act(c);
    case TSR_OP_HADAMARD:
        return check_hadamard(c);
    case TSR_OP_ADD:
        return check_in(c, 1, "in1", TSR_F32, c->p->out.rows, c->p->out.cols, 1);
    default: /* SCALE has no further requirement */
        return TSR_OK;
    }
}

static tsr_status check_gather(const struct check *c)
{
    tsr_status st;
    if ((st = check_out(c, 0, 0)) != TSR_OK ||
        (st = check_in(c, 0, "in", TSR_F32, 0, c->p->out.cols, 0)) != TSR_OK ||
        (st = check_in(c, 1, "rows", TSR_U32, 1, c->p->out.rows, 0)) != TSR_OK ||
        (st = get_indices(c, 1)) != TSR_OK)
        return st;
    for (uint64_t i = 0; i < c->p->out.rows; i++)
        if (c->p->index[i] >= c->p->in[0].rows)
            return tsr_fail(c->err, TSR_E_INVAL, "GATHER: row %u is not below %llu", c->p->index[i],
                            U(c->p->in[0].rows));
    return TSR_OK;
}

static tsr_status check_columns(const struct check *c)
{
    tsr_status st;
    if ((st = check_out(c, 0, 0)) != TSR_OK ||
        (st = check_in(c, 0, "in", TSR_F32, c->p->out.rows, 0, 0)) != TSR_OK ||
        (st = check_in(c, 1, "columns", TSR_U32, 1, c->p->out.cols, 0)) != TSR_OK ||
        (st = get_indices(c, 1)) != TSR_OK)
        return st;
    for (uint64_t i = 0; i < c->p->out.cols; i++)
        if (c->p->index[i] >= c->p->in[0].cols)
            return tsr_fail(c->err, TSR_E_INVAL, "COLUMNS: column %u is not below %llu",
                            c->p->index[i], U(c->p->in[0].cols));
    return TSR_OK;
}

static tsr_status check_mix(const struct check *c)
{
    tsr_status st;
    if ((st = check_out(c, 0, 0)) != TSR_OK ||
        (st = check_in(c, 0, "in", TSR_F32, 0, c->p->out.cols, 0)) != TSR_OK ||
        (st = check_in(c, 1, "weights", TSR_F32, c->p->out.rows, 0, 0)) != TSR_OK ||
        (st = check_in(c, 2, "rows", TSR_U32, c->p->out.rows, c->p->in[1].cols, 0)) != TSR_OK ||
        (st = get_indices(c, 2)) != TSR_OK)
        return st;
    for (uint64_t i = 0; i < c->p->out.rows; i++)
        for (uint64_t j = 0; j < c->p->in[1].cols; j++)
            if (c->p->index[i * c->p->index_stride + j] >= c->p->in[0].rows)
                return tsr_fail(c->err, TSR_E_INVAL, "MIX: row %u is not below %llu",
                                c->p->index[i * c->p->index_stride + j], U(c->p->in[0].rows));
    return TSR_OK;
}

/* ---- the cache --------------------------------------------------------------------- */

static tsr_status check_cache(const struct check *c, const struct tsr_tensor *t, const char *what,
                              struct tsr_op_part *part)
{
    struct tsr_tensor whole;
    uint64_t          cols;
    tsr_status        st = tsr_tensor_cache(t, c->op, c->name, what, &whole, &cols, c->err);
    return st != TSR_OK
               ? st
               : tsr_op_part(c->s, &whole, c->name, what, whole.dtype, 0, cols, part, c->err);
}

/* A tail and the block of a row are inside the cache. */
static tsr_status check_tail(const struct check *c, uint64_t rows, uint64_t token, uint32_t row,
                             uint32_t tail)
{
    uint64_t tails = tsr_kv_tail_rows(c->op->head_dim);
    uint64_t end = (uint64_t)row / TSR_KV_BLOCK * TSR_KV_BLOCK + TSR_KV_BLOCK;
    if (end > rows || tails > rows || tail > rows - tails)
        return tsr_fail(
            c->err, TSR_E_INVAL,
            "%s: the block of row %u or the %llu rows of the tail from row %u on of token "
            "%llu are not inside %llu rows",
            c->name, row, U(tails), tail, U(token), U(rows));
    return TSR_OK;
}

static tsr_status check_kv_store(const struct check *c)
{
    uint64_t   n = (uint64_t)c->op->kv_heads * c->op->head_dim;
    int        blocks = c->op->out && c->op->out->dtype == TSR_Q4_CHANNEL;
    tsr_status st = tsr_tensor_heads(c->op, c->name, c->err);
    if (st != TSR_OK || (st = check_cache(c, c->op->out, "the cache", &c->p->out)) != TSR_OK ||
        (st = check_in(c, 0, "in", TSR_F32, 0, n, 0)) != TSR_OK ||
        (st = check_in(c, 1, "rows", TSR_U32, blocks ? 2 : 1, c->p->in[0].rows, 0)) != TSR_OK ||
        (st = get_indices(c, 1)) != TSR_OK)
        return st;
    c->p->rising = 1;
    for (uint64_t t = 0; t < c->p->in[0].rows; t++) {
        uint32_t row = c->p->index[t];
        if (row >= c->p->out.rows)
            return tsr_fail(c->err, TSR_E_INVAL, "KV_STORE: row %u of token %llu is not below %llu",
                            row, U(t), U(c->p->out.rows));
        if (blocks && (st = check_tail(c, c->p->out.rows, t, row,
                                       c->p->index[c->p->index_stride + t])) != TSR_OK)
            return st;
        c->p->rising &= t == 0 || row > c->p->index[t - 1];
    }
    return TSR_OK;
}

/* Every span is inside both caches. */
static tsr_status check_spans(const struct check *c)
{
    uint64_t        k = c->p->in[1].rows, v = c->p->in[2].rows, rows = k < v ? k : v;
    int             blocks = c->op->in[1]->dtype == TSR_Q4_CHANNEL;
    const uint32_t *span = c->p->index;
    for (uint64_t t = 0; t < c->p->out.rows; t++, span += c->p->index_stride) {
        if (span[0] >= rows || span[1] >= rows - span[0])
            return tsr_fail(c->err, TSR_E_INVAL,
                            "ATTENTION: token %llu at position %u from cache row %u is not inside "
                            "%llu rows",
                            U(t), span[1], span[0], U(rows));
        tsr_status st = blocks ? check_tail(c, k, t, span[0] + span[1], span[2]) : TSR_OK;
        if (st != TSR_OK)
            return st;
        if (blocks && span[0] % TSR_KV_BLOCK)
            return tsr_fail(c->err, TSR_E_INVAL,
                            "ATTENTION: token %llu: cache row %u is not a multiple of %u", U(t),
                            span[0], TSR_KV_BLOCK);
    }
    return TSR_OK;
}

/* Slopes in one row, or slopes and sinks in two. */
static tsr_status check_slopes(const struct check *c)
{
    const struct tsr_tensor *t = c->op->in[4];
    if (t && t->rows == 2)
        return check_optional(c, 4, "slopes and sinks", 2, c->op->heads);
    return check_optional(c, 4, "slopes", 1, c->op->heads);
}

static tsr_status check_attention(const struct check *c)
{
    const struct tsr_op *op = c->op;
    tsr_status           st = tsr_tensor_heads(op, c->name, c->err);
    if (st != TSR_OK)
        return st;
    if (op->heads == 0 || op->heads > 65535 || op->heads % op->kv_heads)
        return tsr_fail(c->err, TSR_E_INVAL,
                        "ATTENTION: %u heads are not a multiple of %u KV heads", op->heads,
                        op->kv_heads);
    uint64_t n = (uint64_t)op->heads * op->head_dim;
    if ((st = check_out(c, 0, n)) != TSR_OK ||
        (st = check_in(c, 0, "q", TSR_F32, c->p->out.rows, n, 0)) != TSR_OK ||
        (st = check_cache(c, op->in[1], "the K cache", &c->p->in[1])) != TSR_OK ||
        (st = check_cache(c, op->in[2], "the V cache", &c->p->in[2])) != TSR_OK)
        return st;
    int blocks = op->in[1]->dtype == TSR_Q4_CHANNEL;
    if ((st = check_in(c, 3, "spans", TSR_U32, c->p->out.rows, blocks ? 3 : 2, 0)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, c->name, c->err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[2], 0, c->name, c->err)) != TSR_OK ||
        (st = check_slopes(c)) != TSR_OK)
        return st;
    if (op->in[2]->dtype != (blocks ? TSR_Q4 : op->in[1]->dtype))
        return tsr_fail(c->err, TSR_E_INVAL, "ATTENTION: K and V caches have dtypes %u and %u",
                        op->in[1]->dtype, op->in[2]->dtype);
    st = get_indices(c, 3);
    return st != TSR_OK ? st : check_spans(c);
}

/* ---- all of them ------------------------------------------------------------------- */

tsr_status tsr_op_check(const struct tsr_op_source *s, const struct tsr_op *op,
                        struct tsr_op_parts *p, struct tsr_err *err)
{
    static const struct {
        const char *name;
        tsr_status (*check)(const struct check *c);
    } kinds[] = { [TSR_OP_LINEAR] = { "LINEAR", check_linear },
                  [TSR_OP_EMBED] = { "EMBED", check_embed },
                  [TSR_OP_NORM] = { "NORM", check_rows },
                  [TSR_OP_ROPE] = { "ROPE", check_rows },
                  [TSR_OP_KV_STORE] = { "KV_STORE", check_kv_store },
                  [TSR_OP_ATTENTION] = { "ATTENTION", check_attention },
                  [TSR_OP_ACT] = { "ACT", check_rows },
                  [TSR_OP_ADD] = { "ADD", check_rows },
                  [TSR_OP_SCALE] = { "SCALE", check_rows },
                  [TSR_OP_GATHER] = { "GATHER", check_gather },
                  [TSR_OP_MIX] = { "MIX", check_mix },
                  [TSR_OP_COLUMNS] = { "COLUMNS", check_columns },
                  [TSR_OP_HADAMARD] = { "HADAMARD", check_rows } };
    *p = (struct tsr_op_parts){ 0 };
    if (op->kind >= sizeof kinds / sizeof *kinds || !kinds[op->kind].check)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "operation %u is not known to the %s backend",
                        op->kind, s->device);
    struct check c = { .s = s, .op = op, .name = kinds[op->kind].name, .p = p, .err = err };
    return kinds[op->kind].check(&c);
}
