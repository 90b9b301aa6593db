/* @NAME@ - round to nearest: columns share a step, a weight takes its nearest multiple. */
#include "@NAME@.h"

#include <algorithm>
#include <cmath>
#include <tessera/guard.hpp>

struct quantizer { const tsr_host *host; const options *o; }; /* the host keeps both */

static tsr_status create(const tsr_host *host, const void *opts, void **self, tsr_err *err)
{
    void *p = host->alloc(host->ctx, sizeof(quantizer), alignof(quantizer));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(quantizer));
    *self = new (p) quantizer{ host, static_cast<const options *>(opts) };
    return TSR_OK;
}

static void destroy(void *self)
{
    if (auto *q = static_cast<quantizer *>(self))
        q->host->release(q->host->ctx, q, sizeof *q);
}

static tsr_status plan(const void *self, const tsr_matrix *w, tsr_quant_plan *p, tsr_err *err)
{
    const options &o = *static_cast<const quantizer *>(self)->o;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: no weights, or too many", w->name);
    p->format.id = TSR_FORMAT_INT;
    p->format.bits = static_cast<uint32_t>(o.bits);
    p->format.group = static_cast<uint64_t>(o.group);
    p->format.scale_dtype = TSR_F32;
    p->rows_per_unit = 1; /* any run of rows may come on its own */
    p->code_bytes = tsr_format_int_code_bytes(&p->format, w->cols);
    p->meta_bytes = tsr_format_int_meta_bytes(&p->format, w->cols);
    return TSR_OK;
}

/* The step of a group: its largest weight takes the outermost code. */
static float step_of(const float *w, uint64_t n, float top)
{
    float largest = 0.0f;
    for (uint64_t k = 0; k < n; k++)
        largest = std::max(largest, std::abs(w[k]));
    return largest > 0.0f ? largest / top : 1.0f;
}

static tsr_status quantize(const void *self, const tsr_quant_job *job, tsr_err *err)
{
    const quantizer  &q = *static_cast<const quantizer *>(self);
    const tsr_matrix &m = *job->src;
    uint64_t group = static_cast<uint64_t>(q.o->group), bits = static_cast<uint64_t>(q.o->bits);
    uint64_t row_bytes = (m.cols * bits + 7) / 8;
    float    top = float((1 << (bits - 1)) - 1), *step = static_cast<float *>(job->meta);
    for (uint64_t r = 0; r < m.rows; r++) {
        unsigned long long row = job->first_row + r;
        auto *w = reinterpret_cast<const float *>(static_cast<char *>(m.data) + r * m.row_stride);
        auto *codes = static_cast<unsigned char *>(job->codes) + r * row_bytes;
        if (q.host->cancelled(q.host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        for (unsigned long long k = 0; k < m.cols; k++)
            if (!std::isfinite(w[k]))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, column %llu is not finite",
                                m.name, row, k);
        std::fill_n(codes, row_bytes, 0);
        for (uint64_t k = 0, bit = 0; k < m.cols; k++, bit += bits) {
            if (k % group == 0)
                *step++ = step_of(w + k, std::min(group, m.cols - k), top);
            if (!std::isnormal(step[-1]) || !std::isnormal(step[-1] * top))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, group %llu: no F32 step fits",
                                m.name, row, static_cast<unsigned long long>(k / group));
            float n = std::clamp(std::rint(w[k] / step[-1]), -top, top);
            auto  code = static_cast<unsigned>(n + top + 1.0f) << bit % 8; /* up to two bytes */
            codes[bit / 8] |= static_cast<unsigned char>(code);
            if (bit % 8 + bits > 8)
                codes[bit / 8 + 1] |= static_cast<unsigned char>(code >> 8);
        }
    }
    return TSR_OK;
}

static tsr_status dequantize(const void *self, const tsr_quant_job *job, tsr_err *)
{
    const options &o = *static_cast<const quantizer *>(self)->o;
    const tsr_matrix &m = *job->dst;
    uint64_t group = static_cast<uint64_t>(o.group), bits = static_cast<uint64_t>(o.bits);
    auto *step = static_cast<const float *>(job->meta);
    for (uint64_t r = 0; r < m.rows; r++) {
        auto *w = reinterpret_cast<float *>(static_cast<char *>(m.data) + r * m.row_stride);
        auto *codes = static_cast<const uint8_t *>(job->codes) + r * ((m.cols * bits + 7) / 8);
        for (uint64_t k = 0, bit = 0; k < m.cols; k++, bit += bits) {
            int code = codes[bit / 8] >> bit % 8;
            if (bit % 8 + bits > 8)
                code |= codes[bit / 8 + 1] << (8 - bit % 8);
            step += k % group == 0;
            w[k] = static_cast<float>((code & ((1 << bits) - 1)) - (1 << (bits - 1))) * step[-1];
        }
    }
    return TSR_OK;
}

static double max_error_steps(const void *) { return 0.5; } /* a promise, as .promises are */
const tsr_quantizer_v1 table = {
    .struct_size = sizeof table, .src_dtypes = 1u << TSR_F32, .promises = TSR_QUANT_DETERMINISTIC,
    .create = tsr_guard<create>, .destroy = destroy, .plan = tsr_guard<plan>,
    .quantize = tsr_guard<quantize>, .dequantize = tsr_guard<dequantize>, .prepare = nullptr,
    .unprepare = nullptr, .extension = nullptr, .max_error_steps = max_error_steps,
    .columns_alone = nullptr,
};
