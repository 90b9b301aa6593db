/* Coding one message, the tree over ranks, and the whole sum in one process. */
#include "base/mem.h"
#include "comm/coder.h"
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---------------------------------------------------------- */

static struct tsr_codec_job job_of(const struct tsr_comm_message *m, uint32_t source)
{
    return (struct tsr_codec_job){ .struct_size = sizeof(struct tsr_codec_job),
                                   .source = source,
                                   .site = m->site,
                                   .rows = m->rows,
                                   .cols = m->cols,
                                   .wire_bytes = m->wire_bytes };
}

/* Sets the state of this end in j. */
static tsr_status state_of(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                           uint32_t source, uint32_t end, struct tsr_codec_job *j,
                           struct tsr_err *err)
{
    return c->streams
               ? tsr_comm_streams_state(c->streams, tsr_comm_instance(c, m->second, m->slice), m,
                                        source, end, &j->state, err)
               : TSR_OK;
}

static bool is_empty(const struct tsr_comm_message *m)
{
    return m->rows == 0 || m->cols == 0;
}

tsr_status tsr_comm_encode(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                           uint32_t source, const float *src, void *wire, struct tsr_err *err)
{
    struct tsr_codec_job j = job_of(m, source);
    if (is_empty(m))
        return TSR_OK;
    j.src = src;
    j.wire = wire;
    TSR_TRY(state_of(c, m, source, TSR_CODEC_ENCODES, &j, err));
    return c->iface->encode(tsr_comm_instance(c, m->second, m->slice), &j, err);
}

/* Codecs only read the wire that they decode. */
static void *wire_of(const void *wire)
{
    return (void *)(uintptr_t)wire;
}

tsr_status tsr_comm_decode(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                           uint32_t source, const void *wire, float *dst, struct tsr_err *err)
{
    struct tsr_codec_job j = job_of(m, source);
    if (is_empty(m))
        return TSR_OK;
    j.dst = dst;
    j.wire = wire_of(wire);
    TSR_TRY(state_of(c, m, source, TSR_CODEC_DECODES, &j, err));
    return c->iface->decode(tsr_comm_instance(c, m->second, m->slice), &j, err);
}

static tsr_status decode_add(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                             uint32_t source, const void *wire, float *dst, struct tsr_err *err)
{
    struct tsr_codec_job j = job_of(m, source);
    j.dst = dst;
    j.wire = wire_of(wire);
    TSR_TRY(state_of(c, m, source, TSR_CODEC_DECODES, &j, err));
    return c->iface->decode_add(tsr_comm_instance(c, m->second, m->slice), &j, err);
}

/* ---- the tree ---------------------------------------------------------- */

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

static void add(float *restrict to, const float *restrict from, uint64_t n)
{
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4)
        *(four *)(to + i) += *(const four *)(from + i);
    for (; i < n; i++)
        to[i] = to[i] + from[i];
}

/* Stores rank r's numbers in a buffer, or adds them to its content. */
static tsr_status leaf(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                       const struct tsr_comm_leaves *l, uint32_t r, bool onto, float *to,
                       struct tsr_err *err)
{
    uint64_t             n = m->rows * m->cols;
    const unsigned char *wire = l->wires;
    if (l->own && r == l->self) {
        if (onto)
            add(to, l->own, n);
        else
            memcpy(to, l->own, n * sizeof *to);
        return TSR_OK;
    }
    wire += r * l->step;
    return onto ? decode_add(c, m, r, wire, to, err) : tsr_comm_decode(c, m, r, wire, to, err);
}

/* Pairs are decoded and added into a buffer. The buffers on the stack hold 2, 4, 8, ... ranks each, the
 * left ones more, and two of one size merge. The stack uses dst, then level. */
tsr_status tsr_comm_tree(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                         const struct tsr_comm_leaves *leaves, float *dst, float *level,
                         uint64_t level_floats, struct tsr_err *err)
{
    float   *stack[TSR_COMM_LEVELS + 1];
    uint64_t n = m->rows * m->cols;
    uint32_t depth = 0;
    if (is_empty(m))
        return TSR_OK;
    for (uint32_t i = 0; i < TSR_COMM_LEVELS + 1; i++)
        stack[i] = i ? level + (i - 1) * level_floats : dst;
    for (uint32_t r = 0; r < c->ranks; r += 2) {
        TSR_TRY(leaf(c, m, leaves, r, false, stack[depth], err));
        if (r + 1 < c->ranks)
            TSR_TRY(leaf(c, m, leaves, r + 1, true, stack[depth], err));
        depth++;
        if (r + 1 < c->ranks) /* an odd one at the end waits for the bigger ones */
            for (uint32_t pair = r / 2; pair & 1; pair >>= 1, depth--)
                add(stack[depth - 2], stack[depth - 1], n);
    }
    for (; depth > 1; depth--)
        add(stack[depth - 2], stack[depth - 1], n);
    return TSR_OK;
}

void tsr_comm_cut(float *dense, const float *x, uint64_t stride, uint64_t first, uint64_t rows,
                  uint64_t cols)
{
    for (uint64_t r = 0; r < rows && cols; r++)
        memcpy(dense + r * cols, x + r * stride + first, cols * sizeof *dense);
}

void tsr_comm_paste(float *x, const float *dense, uint64_t stride, uint64_t first, uint64_t rows,
                    uint64_t cols)
{
    for (uint64_t r = 0; r < rows && cols; r++)
        memcpy(x + r * stride + first, dense + r * cols, cols * sizeof *dense);
}

/* ---- in one process ---------------------------------------------------- */

struct scratch {
    unsigned char *wires;
    float         *dense, *own, *level;
};

/* All ranks' messages of columns [first, first + m->cols) of a piece: coded, then added to `sum`. */
static tsr_status sum_columns(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                              const float *const *partial, uint64_t row, uint64_t stride,
                              uint64_t first, const struct scratch *s, float *sum,
                              struct tsr_err *err)
{
    bool                   two = c->algorithm == TSR_COMM_TWO_STEP;
    struct tsr_comm_leaves l = { s->wires, m->wire_bytes, two ? s->own : NULL, m->slice };
    for (uint32_t r = 0; r < c->ranks; r++) {
        float *to = two && r == m->slice ? s->own : s->dense;
        tsr_comm_cut(to, partial[r] + row * stride, stride, first, m->rows, m->cols);
        if (to == s->dense)
            TSR_TRY(tsr_comm_encode(c, m, r, to, s->wires + r * m->wire_bytes, err));
    }
    return tsr_comm_tree(c, m, &l, sum, s->level, m->rows * m->cols, err);
}

static tsr_status sum_piece(const struct tsr_comm_coder *c, uint32_t site,
                            const float *const *partial, uint64_t row, uint64_t rows, uint64_t cols,
                            const struct scratch *s, float *out, struct tsr_err *err)
{
    uint32_t slices = c->algorithm == TSR_COMM_TWO_STEP ? c->ranks : 1;
    for (uint32_t i = 0; i < slices; i++) {
        uint64_t first, end;
        tsr_comm_slice(cols, slices, i, &first, &end);
        struct tsr_comm_message m = {
            .slice = i, .site = site, .rows = rows, .cols = end - first, .row = row
        };
        TSR_TRY(tsr_comm_wire_bytes(c, false, i, rows, m.cols, &m.wire_bytes, err));
        TSR_TRY(sum_columns(c, &m, partial, row, cols, first, s, s->dense, err));
        if (c->algorithm == TSR_COMM_TWO_STEP) {
            m.second = true;
            TSR_TRY(tsr_comm_wire_bytes(c, true, i, rows, m.cols, &m.wire_bytes, err));
            TSR_TRY(tsr_comm_encode(c, &m, i, s->dense, s->wires, err));
            TSR_TRY(tsr_comm_decode(c, &m, i, s->wires, s->dense, err));
        }
        tsr_comm_paste(out + row * cols, s->dense, cols, first, rows, m.cols);
    }
    return TSR_OK;
}

/* The largest message of a piece, and room for the codes of all ranks. */
static tsr_status make_scratch(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols,
                               struct scratch *s, struct tsr_err *err)
{
    uint32_t slices = c->algorithm == TSR_COMM_TWO_STEP ? c->ranks : 1;
    uint64_t widest = 0, most = 0, n, floats, bytes;
    for (uint32_t i = 0; i < slices; i++) {
        uint64_t first, end;
        tsr_comm_slice(cols, slices, i, &first, &end);
        widest = end - first > widest ? end - first : widest;
        for (int second = 0; second < (slices > 1 ? 2 : 1); second++) {
            TSR_TRY(tsr_comm_wire_bytes(c, second != 0, i, rows, end - first, &n, err));
            most = n > most ? n : most;
        }
    }
    if (!tsr_mul(rows, widest, &n) || !tsr_mul(n, TSR_COMM_LEVELS, &floats) ||
        !tsr_mul(most, c->ranks, &bytes))
        return tsr_fail(err, TSR_E_INVAL, "a message of %llu x %llu is too large",
                        (unsigned long long)rows, (unsigned long long)cols);
    s->wires = tsr_new_aligned(bytes, 1);
    s->dense = tsr_new_aligned(n, sizeof(float));
    s->own = tsr_new_aligned(n, sizeof(float));
    s->level = tsr_new_aligned(floats, sizeof(float));
    if (!s->wires || !s->dense || !s->own || !s->level)
        return tsr_fail_nomem(err, bytes, "a simulated sum");
    return TSR_OK;
}

static void free_scratch(struct scratch *s)
{
    free(s->wires);
    free(s->dense);
    free(s->own);
    free(s->level);
}

tsr_status tsr_comm_sum_simulated(const struct tsr_comm_coder *c, uint32_t site,
                                  const float *const *partial, uint64_t rows, uint64_t cols,
                                  float *out, struct tsr_err *err)
{
    struct scratch s = { 0 };
    uint64_t       each = tsr_comm_piece_rows(c, rows, cols);
    if (rows == 0 || cols == 0)
        return TSR_OK;
    if (c->ranks == 1) { /* no exchange, so no coding */
        if (out != partial[0])
            memcpy(out, partial[0], rows * cols * sizeof *out);
        return TSR_OK;
    }
    tsr_status st = make_scratch(c, each, cols, &s, err);
    for (uint64_t row = 0; st == TSR_OK && row < rows; row += each)
        st = sum_piece(c, site, partial, row, rows - row < each ? rows - row : each, cols, &s, out,
                       err);
    free_scratch(&s);
    return st;
}

/* ---- calibration ------------------------------------------------------- */

static tsr_status observe(struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                          uint32_t source, const float *src, struct tsr_err *err)
{
    struct tsr_codec_job j = job_of(m, source);
    j.src = src;
    return c->iface->observe(tsr_comm_instance(c, m->second, m->slice), &j, err);
}

/* The tree over the partial sums themselves, by the rule of tsr_comm_tree(). */
static void exact_tree(const float *const *partial, uint32_t ranks, uint64_t at, float *sum)
{
    float stack[TSR_COMM_LEVELS + 2] = { 0 };
    int   depth = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        stack[depth++] = partial[r][at];
        for (uint32_t i = r; i & 1; i >>= 1, depth--)
            stack[depth - 2] = stack[depth - 2] + stack[depth - 1];
    }
    for (; depth > 1; depth--)
        stack[depth - 2] = stack[depth - 2] + stack[depth - 1];
    *sum = stack[0];
}

tsr_status tsr_comm_sum_observe(struct tsr_comm_coder *c, uint32_t site,
                                const float *const *partial, uint64_t rows, uint64_t cols,
                                struct tsr_err *err)
{
    uint32_t   slices = c->algorithm == TSR_COMM_TWO_STEP ? c->ranks : 1;
    uint64_t   floats;
    tsr_status st = TSR_OK;
    if (!c->iface->observe)
        return tsr_fail(err, TSR_E_INVAL, "codec '%s' has no calibration",
                        c->spec.found.component->name);
    if (!tsr_mul(rows, cols, &floats))
        return tsr_fail(err, TSR_E_INVAL, "a message of %llu x %llu is too large",
                        (unsigned long long)rows, (unsigned long long)cols);
    float *dense = tsr_new_aligned(floats, sizeof *dense);
    float *sum = tsr_new_aligned(floats, sizeof *sum);
    if (!dense || !sum)
        st = tsr_fail_nomem(err, floats * sizeof *dense, "a codec's calibration");
    for (uint64_t i = 0; st == TSR_OK && i < floats; i++)
        exact_tree(partial, c->ranks, i, &sum[i]);
    for (uint32_t i = 0; st == TSR_OK && i < slices; i++) {
        uint64_t first, end;
        tsr_comm_slice(cols, slices, i, &first, &end);
        struct tsr_comm_message m = { .slice = i, .site = site, .rows = rows, .cols = end - first };
        for (uint32_t r = 0; st == TSR_OK && r < c->ranks && !is_empty(&m); r++) {
            if (c->algorithm == TSR_COMM_TWO_STEP && r == i)
                continue; /* the owner's own is not coded */
            tsr_comm_cut(dense, partial[r], cols, first, rows, m.cols);
            st = observe(c, &m, r, dense, err);
        }
        if (st == TSR_OK && c->algorithm == TSR_COMM_TWO_STEP && !is_empty(&m)) {
            m.second = true;
            tsr_comm_cut(dense, sum, cols, first, rows, m.cols);
            st = observe(c, &m, i, dense, err);
        }
    }
    free(dense);
    free(sum);
    return st;
}
