/* @NAME@ - the share of the model's weights that are close to zero, matrix by matrix. */
#include "@NAME@.h"

#include <cmath>
#include <tessera/guard.hpp>

constexpr uint64_t ROWS = 64; /* that are read at once */

struct step {
    const tsr_host *host;
    const options  *o;
};

static tsr_status create(const tsr_host *host, const void *opts, void **self, tsr_err *err)
{
    void *p = host->alloc(host->ctx, sizeof(step), alignof(step));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(step));
    *self = new (p) step{ host, static_cast<const options *>(opts) };
    return TSR_OK;
}

static void destroy(void *self)
{
    if (auto *s = static_cast<step *>(self))
        s->host->release(s->host->ctx, s, sizeof *s);
}

/* Weights of matrix i that count; buffer has room for ROWS rows. */
static tsr_status count(const step *s, const tsr_step_job *j, uint64_t i, const tsr_step_matrix &m,
                        float *buffer, uint64_t &small, tsr_err *err)
{
    for (uint64_t at = 0; at < m.rows; at += ROWS) {
        uint64_t   n = m.rows - at < ROWS ? m.rows - at : ROWS;
        tsr_status st = j->rows(j->ctx, i, TSR_STEP_PACKED, at, n, buffer, err);
        if (st != TSR_OK)
            return st;
        if (s->host->cancelled(s->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "@NAME@: stopped");
        for (uint64_t k = 0; k < n * m.cols; k++)
            small += std::fabs(static_cast<double>(buffer[k])) < s->o->below;
    }
    return TSR_OK;
}

/* One matrix, as a row of the table. */
static tsr_status one(const step *s, const tsr_step_job *j, uint64_t i, uint64_t &small,
                      uint64_t &all, tsr_err *err)
{
    tsr_step_matrix m{};
    uint64_t        n = 0;
    char            share[32];
    m.struct_size = sizeof m;
    tsr_status st = j->matrix(j->ctx, i, &m, err);
    if (st != TSR_OK)
        return st;
    uint64_t bytes = ROWS * m.cols * sizeof(float);
    auto    *buffer = static_cast<float *>(s->host->alloc(s->host->ctx, bytes, 64));
    if (!buffer)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: rows of %s", m.name);
    st = count(s, j, i, m, buffer, n, err);
    s->host->release(s->host->ctx, buffer, bytes);
    if (st != TSR_OK)
        return st;
    small += n;
    all += m.rows * m.cols;
    (void)snprintf(share, sizeof share, "%.4f",
                   static_cast<double>(n) / static_cast<double>(m.rows * m.cols));
    const char *const cells[] = { m.name, m.format ? m.format : "-", share };
    return j->row(j->ctx, cells, 3, err);
}

static tsr_status run(void *self, const tsr_step_job *j, tsr_err *err)
{
    static const char *const columns[] = { "matrix", "packed", "share" };
    tsr_step_model           m{};
    uint64_t                 small = 0, all = 0;
    m.struct_size = sizeof m;
    tsr_status st = j->model(j->ctx, &m, err);
    if (st == TSR_OK)
        st = j->table(j->ctx, columns, 3, err);
    for (uint64_t i = 0; i < m.matrices && st == TSR_OK; i++)
        st = one(static_cast<const step *>(self), j, i, small, all, err);
    if (st != TSR_OK)
        return st;
    double share = static_cast<double>(small) / static_cast<double>(all);
    st = j->number(j->ctx, "share", share, err);
    return st == TSR_OK ? j->figure(j->ctx, "share of all weights", share, nullptr, err) : st;
}

/* What the step needs and makes is data: the host checks a job without calling run(). */
static const tsr_step_product        product = { sizeof product, TSR_STEP_JSON, "share",
                                                 "Share of the weights that count." };
static const tsr_step_product *const products[] = { &product };

const tsr_step_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .needs = TSR_STEP_MODEL, .inputs = nullptr,
    .n_inputs = 0, .products = products, .n_products = 1, .create = tsr_guard<create>,
    .destroy = destroy, .run = tsr_guard<run>, .check = nullptr, .extension = nullptr,
};
