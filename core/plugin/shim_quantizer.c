/* Guarded quantizers. */
#include "plugin/shim.h"

#include "tessera/draft/kernel_device.h"
#include "tessera/kernel.h"
#include "tessera/quantizer_block.h"
#include "tessera/quantizer_report.h"
#include "tessera/quantizer_tune.h"

struct shim {
    struct tsr_plugin_shim base;
    struct {
        const void                   *raw;
        struct tsr_quantizer_block_v1 table;
    } block;
    struct {
        const void                    *raw;
        struct tsr_quantizer_report_v1 table;
    } report;
    struct {
        const void                  *raw;
        struct tsr_quantizer_tune_v1 table;
    } tune;
    struct {
        const void                    *raw;
        struct tsr_quantizer_kernel_v1 table;
    } kernel;
    struct {
        const void                           *raw;
        struct tsr_quantizer_kernel_device_v1 table;
    } device;
};
#define RAW ((const struct tsr_quantizer_v1 *)shim->base.place->raw)
#define BLOCK                                                                                      \
    ((const struct tsr_quantizer_block_v1 *)tsr_shim_raw(&shim->base, &shim->block.raw,            \
                                                         TSR_QUANTIZER_BLOCK))
#define REPORT                                                                                     \
    ((const struct tsr_quantizer_report_v1 *)tsr_shim_raw(&shim->base, &shim->report.raw,          \
                                                          TSR_QUANTIZER_REPORT))
#define KERNEL                                                                                     \
    ((const struct tsr_quantizer_kernel_v1 *)tsr_shim_raw(&shim->base, &shim->kernel.raw,          \
                                                          TSR_QUANTIZER_KERNEL))
#define DEVICE                                                                                     \
    ((const struct tsr_quantizer_kernel_device_v1 *)tsr_shim_raw(&shim->base, &shim->device.raw,   \
                                                                 TSR_QUANTIZER_KERNEL_DEVICE))
#define TUNE                                                                                       \
    ((const struct tsr_quantizer_tune_v1 *)tsr_shim_raw(&shim->base, &shim->tune.raw,              \
                                                        TSR_QUANTIZER_TUNE))

static tsr_status plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                       struct tsr_err *err)
{
    TSR_CALL(shim, RAW, plan, w, p, err);
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, quantize, job, err);
}

static tsr_status dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, dequantize, job, err);
}

static tsr_status prepare(void *self, const struct tsr_quant_stats *stats, void **prepared,
                          struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, prepare, stats, prepared, err);
}

static void unprepare(void *self, void *prepared)
{
    TSR_CALL_VOID(shim, RAW, unprepare, (shim->base.self, prepared));
}

static double max_error_steps(const void *self)
{
    double steps;
    TSR_CALL_VALUE(shim, RAW, steps, max_error_steps, (shim->base.self));
    return steps;
}

static uint64_t columns_alone(const void *self)
{
    uint64_t columns;
    TSR_CALL_VALUE(shim, RAW, columns, columns_alone, (shim->base.self));
    return columns;
}

static const struct tsr_quantizer_v1 functions = {
    .destroy = tsr_plugin_shim_destroy,
    .plan = plan,
    .quantize = quantize,
    .dequantize = dequantize,
    .prepare = prepare,
    .unprepare = unprepare,
    .extension = tsr_plugin_shim_extension,
    .max_error_steps = max_error_steps,
    .columns_alone = columns_alone,
};

/* ---- tessera.quantizer.block/1 --------------------------------------------------------------- */

static uint64_t block_need(const void *self)
{
    uint64_t need;
    TSR_CALL_VALUE(shim, BLOCK, need, block_need, (shim->base.self));
    return need;
}

static uint64_t clip_group(const void *self, uint64_t cols)
{
    uint64_t group;
    TSR_CALL_VALUE(shim, BLOCK, group, clip_group, (shim->base.self, cols));
    return group;
}

/* block->loss() is the host's, so its error may come back. */
static tsr_status search(const void *self, const struct tsr_block *block,
                         struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    const struct shim      *shim = self;
    struct tsr_plugin_guard g;
    struct tsr_plugin_state was;
    tsr_plugin_guard_enter_life(&g, &was, &shim->base.place->part, "search", err);
    tsr_status st = BLOCK->search(shim->base.self, block, choices, err);
    if (st <= TSR_E_INPUT && st >= TSR_E_PLUGIN)
        g.inner = st;
    return tsr_plugin_guard_leave_life(&g, &was, st, err);
}

static const struct tsr_quantizer_block_v1 block = { .block_need = block_need,
                                                     .clip_group = clip_group,
                                                     .search = search };

/* ---- tessera.quantizer.report/1 -------------------------------------------------------------- */

static tsr_status report_quantize(const void *self, const struct tsr_quant_job *job, double *loss,
                                  double *rtn_loss, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, REPORT, quantize, job, loss, rtn_loss, err);
}

static void report_prepared(const void *self, const void *prepared,
                            struct tsr_quant_prepare_report *out)
{
    TSR_CALL_VOID(shim, REPORT, prepared, (shim->base.self, prepared, out));
}

static const struct tsr_quantizer_report_v1 report = { .quantize = report_quantize,
                                                       .prepared = report_prepared };

/* ---- tessera.quantizer.tune/1 ---------------------------------------------------------------- */

static uint64_t budget(const void *self)
{
    uint64_t trials;
    TSR_CALL_VALUE(shim, TUNE, trials, budget, (shim->base.self));
    return trials;
}

/* block->run() is the host's, so its error may come back. */
static tsr_status tune_block(const void *self, const struct tsr_tune_block *b,
                             struct tsr_tune_packed *const *packed, struct tsr_err *err)
{
    const struct shim      *shim = self;
    struct tsr_plugin_guard g;
    struct tsr_plugin_state was;
    tsr_plugin_guard_enter_life(&g, &was, &shim->base.place->part, "tune", err);
    tsr_status st = TUNE->tune(shim->base.self, b, packed, err);
    if (st <= TSR_E_INPUT && st >= TSR_E_PLUGIN)
        g.inner = st;
    return tsr_plugin_guard_leave_life(&g, &was, st, err);
}

static const struct tsr_quantizer_tune_v1 tune = { .budget = budget, .tune = tune_block };

/* ---- tessera.kernel/1 -------------------------------------------------------------------------- */

static tsr_status kernel_scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                                 uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(shim, KERNEL, scratch, w, n, bytes, err);
}

static tsr_status kernel_linear(const void *self, const struct tsr_kernel_job *job,
                                struct tsr_err *err)
{
    TSR_CALL(shim, KERNEL, linear, job, err);
}

static tsr_status kernel_prepared(const void *self, const struct tsr_kernel_weight *w,
                                  uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(shim, KERNEL, prepared, w, bytes, err);
}

static tsr_status kernel_prepare(const void *self, const struct tsr_kernel_weight *w, void *to,
                                 struct tsr_err *err)
{
    TSR_CALL(shim, KERNEL, prepare, w, to, err);
}

static tsr_status kernel_input_bytes(const void *self, const struct tsr_kernel_weight *w,
                                     uint64_t n, uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(shim, KERNEL, input_bytes, w, n, bytes, err);
}

static tsr_status kernel_inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                                struct tsr_err *err)
{
    TSR_CALL(shim, KERNEL, inputs, job, to, err);
}

static int kernel_alike(const void *self, const struct tsr_kernel_weight *w, const void *other,
                        const struct tsr_kernel_weight *its, uint64_t n)
{
    const struct shim *of = other;
    int                same;
    TSR_CALL_VALUE(shim, KERNEL, same, alike, (shim->base.self, w, of->base.self, its, n));
    return same;
}

static const struct tsr_quantizer_kernel_v1 kernel = { .scratch = kernel_scratch,
                                                       .linear = kernel_linear,
                                                       .prepared = kernel_prepared,
                                                       .prepare = kernel_prepare,
                                                       .input_bytes = kernel_input_bytes,
                                                       .inputs = kernel_inputs,
                                                       .alike = kernel_alike };

/* ---- tessera.kernel.device/1 ------------------------------------------------------------------- */

static tsr_status device_code(const void *self, const char *target,
                              const struct tsr_device_code **code, struct tsr_err *err)
{
    TSR_CALL(shim, DEVICE, code, target, code, err);
}

static tsr_status device_scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                                 uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(shim, DEVICE, scratch, w, n, bytes, err);
}

static tsr_status device_launch(const void *self, const struct tsr_device_job *job,
                                struct tsr_device_launch *l, struct tsr_err *err)
{
    TSR_CALL(shim, DEVICE, launch, job, l, err);
}

static const struct tsr_quantizer_kernel_device_v1 device = { .code = device_code,
                                                              .scratch = device_scratch,
                                                              .launch = device_launch };

static const struct tsr_plugin_shim_extension extensions[] = {
    TSR_SHIM_EXTENSION(struct shim, TSR_QUANTIZER_BLOCK, block, block),
    TSR_SHIM_EXTENSION(struct shim, TSR_QUANTIZER_REPORT, report, report),
    TSR_SHIM_EXTENSION(struct shim, TSR_QUANTIZER_TUNE, tune, tune),
    TSR_SHIM_EXTENSION(struct shim, TSR_QUANTIZER_KERNEL, kernel, kernel),
    TSR_SHIM_EXTENSION(struct shim, TSR_QUANTIZER_KERNEL_DEVICE, device, device),
};

const struct tsr_plugin_shim_kind tsr_shim_quantizer = {
    .id = TSR_KIND_QUANTIZER,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_quantizer_v1, create),
    .destroy_at = offsetof(struct tsr_quantizer_v1, destroy),
    .extension_at = offsetof(struct tsr_quantizer_v1, extension),
    .extensions = extensions,
    .n_extensions = sizeof extensions / sizeof *extensions,
};
