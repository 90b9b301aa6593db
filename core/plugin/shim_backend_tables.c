/* The optional tables of guarded backends. */
#include "plugin/shim_backend.h"

#define CODEC                                                                                      \
    ((const struct tsr_backend_codec_v1 *)tsr_shim_raw(&shim->base, &shim->codec.raw,              \
                                                       TSR_BACKEND_CODEC))
#define LAYOUT                                                                                     \
    ((const struct tsr_backend_layout_v1 *)tsr_shim_raw(&shim->base, &shim->layout.raw,            \
                                                        TSR_BACKEND_LAYOUT))
#define COMPENSATE                                                                                 \
    ((const struct tsr_backend_compensate_v1 *)tsr_shim_raw(&shim->base, &shim->compensate.raw,    \
                                                            TSR_BACKEND_COMPENSATE))
#define PROBE                                                                                      \
    ((const struct tsr_probe_v1 *)tsr_shim_raw(&shim->base, &shim->probe.raw, TSR_PROBE_EXTENSION))
#define LINEARS                                                                                    \
    ((const struct tsr_backend_linears_v1 *)tsr_shim_raw(&shim->base, &shim->linears.raw,          \
                                                         TSR_BACKEND_LINEARS))
#define SIZES                                                                                      \
    ((const struct tsr_sizes_v1 *)tsr_shim_raw(&shim->base, &shim->sizes.raw, TSR_SIZES_EXTENSION))
#define CANDIDATES                                                                                 \
    ((const struct tsr_backend_candidates_v1 *)tsr_shim_raw(&shim->base, &shim->candidates.raw,    \
                                                            TSR_BACKEND_CANDIDATES))
#define LAUNCH                                                                                     \
    ((const struct tsr_backend_launch_v1 *)tsr_shim_raw(&shim->base, &shim->launch.raw,            \
                                                        TSR_BACKEND_LAUNCH))
#define WINDOW                                                                                     \
    ((const struct tsr_backend_window_v1 *)tsr_shim_raw(&shim->base, &shim->window.raw,            \
                                                        TSR_BACKEND_WINDOW))
#define PEAKS ((const struct tsr_peaks_v1 *)tsr_shim_raw(&shim->base, &shim->peaks.raw, TSR_PEAKS))

/* ---- tessera.backend.codec/1 ---------------------------------------------------------------------- */

static tsr_status stream_open(void *self, void **stream, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CODEC, stream_open, stream, err);
}

static void stream_close(void *self, void *stream)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, CODEC, stream_close, (shim->base.self, stream));
}

static tsr_status stream_behind(void *self, void *stream, void *other, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CODEC, stream_behind, stream, other, err);
}

static void *address(const void *self, const void *buffer)
{
    void *at;
    TSR_CALL_VALUE(tsr_plugin_shim_device, CODEC, at, address, (shim->base.self, buffer));
    return at;
}

static const void *place(const void *self)
{
    const void *answer;
    TSR_CALL_VALUE(tsr_plugin_shim_device, CODEC, answer, place, (shim->base.self));
    return answer;
}

static tsr_status wire_load(void *self, const struct tsr_codec_wire *w, void **wire,
                            struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CODEC, wire_load, w, wire, err);
}

static void wire_free(void *self, void *wire)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, CODEC, wire_free, (shim->base.self, wire));
}

static tsr_status encode(void *self, void *stream, const void *wire, const struct tsr_tensor *x,
                         void *buffer, uint64_t offset, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CODEC, encode, stream, wire, x, buffer, offset, err);
}

static tsr_status decode(void *self, void *stream, const void *wire, const void *buffer,
                         uint64_t offset, const struct tsr_tensor *x, int32_t add,
                         struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CODEC, decode, stream, wire, buffer, offset, x, add, err);
}

static const struct tsr_backend_codec_v1 codec = {
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_behind = stream_behind,
    .address = address,
    .place = place,
    .wire_load = wire_load,
    .wire_free = wire_free,
    .encode = encode,
    .decode = decode,
};

/* ---- tessera.backend.layout/1 ----------------------------------------------------------------------- */

static tsr_status weight_layout(const void *self, const struct tsr_weight_desc *w,
                                struct tsr_weight_layout *l, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, LAYOUT, weight_layout, w, l, err);
}

static tsr_status weight_read(void *self, const void *weight, uint64_t offset, void *dst,
                              uint64_t bytes, struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, LAYOUT, weight_read, weight, offset, dst, bytes, err);
}

static tsr_status weight_borrow(void *self, const struct tsr_weight_desc *w, const void *data,
                                uint64_t bytes, void **weight, struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, LAYOUT, weight_borrow, w, data, bytes, weight, err);
}

static const struct tsr_backend_layout_v1 layout = { .weight_layout = weight_layout,
                                                     .weight_read = weight_read,
                                                     .weight_borrow = weight_borrow };

/* ---- the table of compensation ------------------------------------------------------------------------ */

static tsr_status residual_load(void *self, const struct tsr_residual_desc *r, void **residual,
                                struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, COMPENSATE, residual_load, r, residual, err);
}

static void residual_free(void *self, void *residual)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, COMPENSATE, residual_free, (shim->base.self, residual));
}

static tsr_status select_channels(void *self, void *stream, const struct tsr_select_op *op,
                                  struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, COMPENSATE, select, stream, op, err);
}

static tsr_status compensate(void *self, void *stream, const struct tsr_compensate_op *op,
                             struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, COMPENSATE, compensate, stream, op, err);
}

static tsr_status site(void *self, void *stream, const struct tsr_site_op *op, struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, COMPENSATE, site, stream, op, err);
}

static uint32_t most_blocks(const void *self)
{
    uint32_t n;
    TSR_CALL_VALUE(tsr_plugin_shim_device, COMPENSATE, n, most_blocks, (shim->base.self));
    return n;
}

static const struct tsr_backend_compensate_v1 compensation = { .residual_load = residual_load,
                                                               .residual_free = residual_free,
                                                               .select = select_channels,
                                                               .compensate = compensate,
                                                               .site = site,
                                                               .most_blocks = most_blocks };

/* ---- tessera.probe/1 -------------------------------------------------------------------------------- */

static tsr_status probe_read(void *self, const void *buffer, uint64_t offset, uint64_t bytes,
                             uint32_t shape, struct tsr_probe_result *r, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PROBE, read, buffer, offset, bytes, shape, r, err);
}

static tsr_status probe_fma(void *self, double seconds, struct tsr_probe_result *r,
                            struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PROBE, fma, seconds, r, err);
}

static tsr_status probe_dot(void *self, double seconds, struct tsr_probe_result *r,
                            struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PROBE, dot, seconds, r, err);
}

static tsr_status probe_clock(void *self, double seconds, struct tsr_probe_result *r,
                              struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PROBE, clock, seconds, r, err);
}

static tsr_status probe_encode(void *self, const struct tsr_format *format, double seconds,
                               struct tsr_probe_result *r, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PROBE, encode, format, seconds, r, err);
}

static tsr_status probe_bf16(void *self, double seconds, struct tsr_probe_result *r,
                             struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PROBE, bf16, seconds, r, err);
}

static const struct tsr_probe_v1 probe = {
    .read = probe_read,
    .fma = probe_fma,
    .dot = probe_dot,
    .clock = probe_clock,
    .encode = probe_encode,
    .bf16 = probe_bf16,
};

/* ---- tessera.sizes/1 -------------------------------------------------------------------------------- */

static tsr_status sizes_weight(const void *self, const struct tsr_weight_desc *w, uint64_t *bytes,
                               struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, SIZES, weight, w, bytes, err);
}

static tsr_status sizes_linear(const void *self, const struct tsr_weight_desc *w, uint32_t act,
                               uint64_t tokens, uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, SIZES, linear, w, act, tokens, bytes, err);
}

static tsr_status sizes_attention(const void *self, uint64_t tokens, uint64_t positions,
                                  uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
                                  uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, SIZES, attention, tokens, positions, heads, kv_heads, head_dim,
             bytes, err);
}

static tsr_status sizes_reserve(void *self, uint64_t bytes, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, SIZES, reserve, bytes, err);
}

static const struct tsr_sizes_v1 sizes = { .weight = sizes_weight,
                                           .linear = sizes_linear,
                                           .attention = sizes_attention,
                                           .reserve = sizes_reserve };

/* ---- tessera.backend.linears/1 ------------------------------------------------------------------------ */

static tsr_status run_linears(void *self, void *stream, const struct tsr_op *const *op, uint32_t n,
                              struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, LINEARS, linears, stream, op, n, err);
}

static tsr_status run_gated(void *self, void *stream, const struct tsr_gated_op *feed, uint32_t n,
                            struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, LINEARS, gated, stream, feed, n, err);
}

static const struct tsr_backend_linears_v1 linears = { .linears = run_linears, .gated = run_gated };

/* ---- tessera.backend.candidates/1 --------------------------------------------------------------------- */

static tsr_status candidates_reserve(void *self, uint64_t rows, uint64_t vocab, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CANDIDATES, reserve, rows, vocab, err);
}

static tsr_status candidates_find(void *self, const struct tsr_tensor *logits, uint32_t most,
                                  const float *inverse, struct tsr_candidate *best,
                                  struct tsr_candidate_row *row, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, CANDIDATES, find, logits, most, inverse, best, row, err);
}

static const struct tsr_backend_candidates_v1 candidates = { .reserve = candidates_reserve,
                                                             .find = candidates_find };

/* ---- tessera.peaks/1 ------------------------------------------------------------------------------------ */

static tsr_status peaks_copy(void *self, uint64_t bytes, double *rate, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, PEAKS, copy, bytes, rate, err);
}

static double peaks_multiply(const void *self)
{
    double rate;
    TSR_CALL_VALUE(tsr_plugin_shim_device, PEAKS, rate, multiply, (shim->base.self));
    return rate;
}

static const struct tsr_peaks_v1 peaks = { .copy = peaks_copy, .multiply = peaks_multiply };

/* ---- tessera.backend.launch/1 -------------------------------------------------------------------------- */

static tsr_status launch_load(void *self, const struct tsr_device_code *code, void **loaded,
                              struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, LAUNCH, load, code, loaded, err);
}

static void launch_unload(void *self, void *loaded)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, LAUNCH, unload, (shim->base.self, loaded));
}

static uint64_t launch_address(const void *self, const void *buffer)
{
    uint64_t address;
    TSR_CALL_VALUE(tsr_plugin_shim_device, LAUNCH, address, address, (shim->base.self, buffer));
    return address;
}

static tsr_status launch_launch(void *self, void *stream, void *loaded,
                                const struct tsr_device_launch *l, struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, LAUNCH, launch, stream, loaded, l, err);
}

static tsr_status launch_segments(void *self, void *stream, const struct tsr_tensor *sums,
                                  uint32_t segments, const struct tsr_tensor *bias,
                                  const struct tsr_tensor *out, struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, LAUNCH, segments, stream, sums, segments, bias, out,
                    err);
}

static const struct tsr_backend_launch_v1 launch = { .load = launch_load,
                                                     .unload = launch_unload,
                                                     .address = launch_address,
                                                     .launch = launch_launch,
                                                     .segments = launch_segments };

/* ---- tessera.backend.window/1 --------------------------------------------------------------------------- */

static tsr_status window_load(void *self, const struct tsr_window *w,
                              const struct tsr_window_codes *c, void **sums, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, WINDOW, load, w, c, sums, err);
}

static void window_free(void *self, void *sums)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, WINDOW, free, (shim->base.self, sums));
}

static uint64_t window_room(const void *self, const struct tsr_window *w, const void *sums)
{
    uint64_t rows;
    TSR_CALL_VALUE(tsr_plugin_shim_device, WINDOW, rows, room, (shim->base.self, w, sums));
    return rows;
}

static tsr_status window_sum(void *self, const struct tsr_window *w, uint64_t turn,
                             const void *sums, const struct tsr_tensor *x, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, WINDOW, sum, w, turn, sums, x, err);
}

static void window_forget(void *self)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, WINDOW, forget, (shim->base.self));
}

static const struct tsr_backend_window_v1 window = { .load = window_load,
                                                     .free = window_free,
                                                     .room = window_room,
                                                     .sum = window_sum,
                                                     .forget = window_forget };

const struct tsr_plugin_shim_extension tsr_shim_backend_tables[TSR_SHIM_BACKEND_TABLES] = {
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_CODEC, codec, codec),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_LAYOUT, layout, layout),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_COMPENSATE, compensate,
                       compensation),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_PROBE_EXTENSION, probe, probe),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_SIZES_EXTENSION, sizes, sizes),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_LINEARS, linears, linears),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_CANDIDATES, candidates,
                       candidates),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_PEAKS, peaks, peaks),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_LAUNCH, launch, launch),
    TSR_SHIM_EXTENSION(struct tsr_plugin_shim_device, TSR_BACKEND_WINDOW, window, window),
};
