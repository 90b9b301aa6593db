/* rows_cxx.cc - rows.c once more, as somebody outside would write it in C++: the same bytes must
 * come out.  Exceptions are caught at the border. */
#include "rows_cxx.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

class Rows
{
  public:
    Rows(const tsr_host *host, uint32_t bits) : host_(host), format_()
    {
        format_.struct_size = sizeof format_;
        format_.id = TSR_FORMAT_INT;
        format_.bits = bits;
        format_.zero = TSR_ZERO_MID;
        format_.scale_dtype = TSR_F32;
    }

    const tsr_host *host() const
    {
        return host_;
    }
    const tsr_format &format() const
    {
        return format_;
    }

    float scale(const float *x, uint64_t cols, uint64_t row) const
    {
        float largest = 0;
        for (uint64_t k = 0; k < cols; k++) {
            if (!std::isfinite(x[k]))
                throw std::domain_error("row " + std::to_string(row) + ", column " +
                                        std::to_string(k) + " is not finite");
            largest = std::max(largest, std::fabs(x[k]));
        }
        return std::max(largest / (middle() - 1), FLT_MIN);
    }

    void encode(const float *x, uint64_t cols, float scale, uint8_t *codes) const
    {
        std::vector<uint8_t> all(tsr_format_int_code_bytes(&format_, cols) + 1);
        for (uint64_t k = 0, bit = 0; k < cols; k++, bit += format_.bits) {
            const uint32_t code = static_cast<uint32_t>(std::nearbyint(x[k] / scale) + middle());
            const uint32_t at = code << bit % 8;
            all[bit / 8] = static_cast<uint8_t>(all[bit / 8] | at);
            all[bit / 8 + 1] = static_cast<uint8_t>(all[bit / 8 + 1] | at >> 8);
        }
        std::copy(all.begin(), all.end() - 1, codes);
    }

    void decode(const uint8_t *codes, uint64_t cols, float scale, float *y) const
    {
        const uint64_t       bytes = tsr_format_int_code_bytes(&format_, cols);
        std::vector<uint8_t> all(codes, codes + bytes);
        all.push_back(0);
        for (uint64_t k = 0, bit = 0; k < cols; k++, bit += format_.bits) {
            const uint32_t two = all[bit / 8] | static_cast<uint32_t>(all[bit / 8 + 1]) << 8;
            const uint32_t code = two >> bit % 8 & ((1u << format_.bits) - 1);
            y[k] = (static_cast<float>(code) - middle()) * scale;
        }
    }

  private:
    float middle() const
    {
        return static_cast<float>(1u << (format_.bits - 1));
    }

    const tsr_host *host_;
    tsr_format      format_;
};

/* What a plugin throws ends here. */
template <class Body> tsr_status guarded(tsr_err *err, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return tsr_fail(err, TSR_E_NOMEM, "out of memory");
    } catch (const std::domain_error &e) {
        return tsr_fail(err, TSR_E_NUMERIC, "%s", e.what());
    } catch (...) {
        return tsr_fail(err, TSR_E_INVAL, "failed");
    }
}

} // namespace

tsr_status rows_create(const tsr_host *host, const void *opts, void **self, tsr_err *err)
{
    const rows_options *o = static_cast<const rows_options *>(opts);
    void               *room = host->alloc(host->ctx, sizeof(Rows), alignof(Rows));
    if (!room)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes", sizeof(Rows));
    *self = new (room) Rows(host, static_cast<uint32_t>(o->bits));
    return TSR_OK;
}

void rows_destroy(void *self)
{
    Rows *q = static_cast<Rows *>(self);
    if (!q)
        return;
    const tsr_host *host = q->host();
    q->~Rows();
    host->release(host->ctx, q, sizeof *q);
}

tsr_status rows_plan(const void *self, const tsr_matrix *w, tsr_quant_plan *p, tsr_err *err)
{
    const Rows *q = static_cast<const Rows *>(self);
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        static_cast<unsigned long long>(w->rows),
                        static_cast<unsigned long long>(w->cols));
    tsr_format_store(&p->format, &q->format());
    p->rows_per_unit = 1;
    p->code_bytes = tsr_format_int_code_bytes(&q->format(), w->cols);
    p->meta_bytes = tsr_format_int_meta_bytes(&q->format(), w->cols);
    return TSR_OK;
}

tsr_status rows_quantize(const void *self, const tsr_quant_job *job, tsr_err *err)
{
    return guarded(err, [=]() -> tsr_status {
        const Rows       *q = static_cast<const Rows *>(self);
        const tsr_matrix *w = job->src;
        const uint64_t    bytes = tsr_format_int_code_bytes(&q->format(), w->cols);
        for (uint64_t r = 0; r < w->rows; r++) {
            const char  *row = static_cast<const char *>(w->data) + r * w->row_stride;
            const float *x = static_cast<const float *>(static_cast<const void *>(row));
            if (q->host()->cancelled(q->host()->ctx))
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            const float scale = q->scale(x, w->cols, job->first_row + r);
            std::memcpy(static_cast<char *>(job->meta) + r * sizeof scale, &scale, sizeof scale);
            q->encode(x, w->cols, scale, static_cast<uint8_t *>(job->codes) + r * bytes);
        }
        return TSR_OK;
    });
}

tsr_status rows_dequantize(const void *self, const tsr_quant_job *job, tsr_err *err)
{
    return guarded(err, [=]() -> tsr_status {
        const Rows    *q = static_cast<const Rows *>(self);
        const uint64_t bytes = tsr_format_int_code_bytes(&q->format(), job->dst->cols);
        for (uint64_t r = 0; r < job->dst->rows; r++) {
            float scale;
            std::memcpy(&scale, static_cast<const char *>(job->meta) + r * sizeof scale,
                        sizeof scale);
            void *y = static_cast<char *>(job->dst->data) + r * job->dst->row_stride;
            q->decode(static_cast<const uint8_t *>(job->codes) + r * bytes, job->dst->cols, scale,
                      static_cast<float *>(y));
        }
        return TSR_OK;
    });
}
