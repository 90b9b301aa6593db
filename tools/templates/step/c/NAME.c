/* @NAME@ - the share of the model's weights that are close to zero, matrix by matrix. */
#include <tessera/step.h>

#include <math.h>
#include <string.h>

#define ROWS 64u /* that are read at once */

struct options {
    double below;
};

static const struct tsr_option options[] = {
    TSR_OPTION_REAL(struct options, below, 0.01, 0.0, 1.0, NULL,
                    "Weights of a smaller magnitude count."),
};

struct step {
    const struct tsr_host *host;
    const struct options  *o;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct step *s = host->alloc(host->ctx, sizeof *s, 16);
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *s);
    *s = (struct step){ host, opts };
    *self = s;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct step *s = self;
    if (s)
        s->host->release(s->host->ctx, s, sizeof *s);
}

/* Weights of matrix i that count; buffer has room for ROWS rows. */
static tsr_status count(const struct step *s, const struct tsr_step_job *j, uint64_t i,
                        const struct tsr_step_matrix *m, float *buffer, uint64_t *small,
                        struct tsr_err *err)
{
    for (uint64_t at = 0; at < m->rows; at += ROWS) {
        uint64_t   n = m->rows - at < ROWS ? m->rows - at : ROWS;
        tsr_status st = j->rows(j->ctx, i, TSR_STEP_PACKED, at, n, buffer, err);
        if (st != TSR_OK)
            return st;
        if (s->host->cancelled(s->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "@NAME@: stopped");
        for (uint64_t k = 0; k < n * m->cols; k++)
            *small += fabs((double)buffer[k]) < s->o->below;
    }
    return TSR_OK;
}

/* One matrix, as a row of the table. */
static tsr_status one(const struct step *s, const struct tsr_step_job *j, uint64_t i,
                      uint64_t *small, uint64_t *all, struct tsr_err *err)
{
    struct tsr_step_matrix m;
    uint64_t               n = 0;
    char                   share[32];
    memset(&m, 0, sizeof m);
    m.struct_size = sizeof m;
    tsr_status st = j->matrix(j->ctx, i, &m, err);
    if (st != TSR_OK)
        return st;
    uint64_t bytes = ROWS * m.cols * sizeof(float);
    float   *buffer = s->host->alloc(s->host->ctx, bytes, 64);
    if (!buffer)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: rows of %s", m.name);
    st = count(s, j, i, &m, buffer, &n, err);
    s->host->release(s->host->ctx, buffer, bytes);
    if (st != TSR_OK)
        return st;
    *small += n;
    *all += m.rows * m.cols;
    (void)snprintf(share, sizeof share, "%.4f", (double)n / (double)(m.rows * m.cols));
    const char *const cells[] = { m.name, m.format ? m.format : "-", share };
    return j->row(j->ctx, cells, 3, err);
}

static tsr_status run(void *self, const struct tsr_step_job *j, struct tsr_err *err)
{
    static const char *const columns[] = { "matrix", "packed", "share" };
    struct tsr_step_model    m;
    uint64_t                 small = 0, all = 0;
    memset(&m, 0, sizeof m);
    m.struct_size = sizeof m;
    tsr_status st = j->model(j->ctx, &m, err);
    if (st == TSR_OK)
        st = j->table(j->ctx, columns, 3, err);
    for (uint64_t i = 0; i < m.matrices && st == TSR_OK; i++)
        st = one(self, j, i, &small, &all, err);
    if (st == TSR_OK)
        st = j->number(j->ctx, "share", (double)small / (double)all, err);
    return st == TSR_OK ? j->figure(j->ctx, "share of all weights", (double)small / (double)all,
                                    NULL, err)
                        : st;
}

/* What the step needs and makes is data: the host checks a job without calling run(). */
static const struct tsr_step_product        share = { sizeof share, TSR_STEP_JSON, "share",
                                                      "Share of the weights that count." };
static const struct tsr_step_product *const products[] = { &share };

static const struct tsr_step_v1 table = {
    .struct_size = sizeof table, .needs = TSR_STEP_MODEL, .products = products, .n_products = 1,
    .create = create, .destroy = destroy, .run = run,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_STEP, .name = "@NAME@", .iface = &table,
    .summary = "Counts weights that are close to zero.",
    .options = options, .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
