/* layout_v1.c - the layout of ABI 1.2 as it was.  Headers of every later minor of major 1 compile
 * with it: structs may be longer, no member may be elsewhere.  Not one line may be changed. */
#include <tessera/backend.h>
#include <tessera/backend_candidates.h>
#include <tessera/backend_codec.h>
#include <tessera/backend_layout.h>
#include <tessera/codec.h>
#include <tessera/component.h>
#include <tessera/dtype.h>
#include <tessera/format.h>
#include <tessera/here.h>
#include <tessera/host.h>
#include <tessera/kernel.h>
#include <tessera/kv.h>
#include <tessera/kv_cache.h>
#include <tessera/linalg.h>
#include <tessera/option.h>
#include <tessera/plugin.h>
#include <tessera/quantizer.h>
#include <tessera/quantizer_block.h>
#include <tessera/quantizer_report.h>
#include <tessera/quantizer_tune.h>
#include <tessera/sampler.h>
#include <tessera/solver.h>
#include <tessera/status.h>
#include <tessera/step.h>
#include <tessera/table.h>
#include <tessera/threads.h>
#include <tessera/transport.h>

#if defined(__cplusplus)
#define CHECK static_assert
#else
#define CHECK _Static_assert
#endif
#define SIZE(type, n)       CHECK(sizeof(type) >= (n), #type)
#define AT(type, member, n) CHECK(offsetof(type, member) == (n), #type "." #member)
#define IS(name, n)         CHECK((name) == (n), #name)
#define TEXT(name, s)       CHECK(__builtin_strcmp(name, s) == 0, #name)
/* C compares real numbers in no constant expression of all compilers: as they are spelt. */
#define SPELT(n)      #n
#define REAL(name, n) CHECK(__builtin_strcmp(SPELT(name), #n) == 0, #name)

CHECK(sizeof(void *) == 8 && sizeof(void (*)(void)) == 8, "64-bit");
CHECK(sizeof(tsr_status) == 4 && sizeof(float) == 4 && sizeof(double) == 8, "plain types");
#if defined(__BYTE_ORDER__)
CHECK(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");
#endif

/* tessera/status.h */
SIZE(struct tsr_err, 32);
AT(struct tsr_err, struct_size, 0);
AT(struct tsr_err, cap, 4);
AT(struct tsr_err, text, 8);
AT(struct tsr_err, object_at, 16);
AT(struct tsr_err, object_bytes, 20);
AT(struct tsr_err, line, 24);
AT(struct tsr_err, column, 28);

/* tessera/host.h */
SIZE(struct tsr_host, 64);
AT(struct tsr_host, struct_size, 0);
AT(struct tsr_host, abi_major, 4);
AT(struct tsr_host, abi_minor, 6);
AT(struct tsr_host, ctx, 8);
AT(struct tsr_host, log, 16);
AT(struct tsr_host, alloc, 24);
AT(struct tsr_host, release, 32);
AT(struct tsr_host, parallel_for, 40);
AT(struct tsr_host, cancelled, 48);
AT(struct tsr_host, service, 56);

/* tessera/option.h */
SIZE(struct tsr_choice, 24);
AT(struct tsr_choice, name, 0);
AT(struct tsr_choice, help, 8);
AT(struct tsr_choice, value, 16);
SIZE(union tsr_value, 8);
AT(union tsr_value, i, 0);
AT(union tsr_value, r, 0);
AT(union tsr_value, s, 0);
SIZE(struct tsr_option, 88);
AT(struct tsr_option, name, 0);
AT(struct tsr_option, help, 8);
AT(struct tsr_option, unit, 16);
AT(struct tsr_option, replaced_by, 24);
AT(struct tsr_option, type, 32);
AT(struct tsr_option, flags, 36);
AT(struct tsr_option, offset, 40);
AT(struct tsr_option, def, 48);
AT(struct tsr_option, min, 56);
AT(struct tsr_option, max, 64);
AT(struct tsr_option, choices, 72);
AT(struct tsr_option, n_choices, 80);

/* tessera/component.h */
SIZE(struct tsr_component, 64);
AT(struct tsr_component, struct_size, 0);
AT(struct tsr_component, option_stride, 4);
AT(struct tsr_component, kind, 8);
AT(struct tsr_component, name, 16);
AT(struct tsr_component, summary, 24);
AT(struct tsr_component, iface, 32);
AT(struct tsr_component, options, 40);
AT(struct tsr_component, n_options, 48);
AT(struct tsr_component, options_size, 56);

/* tessera/plugin.h */
SIZE(struct tsr_plugin, 72);
AT(struct tsr_plugin, magic, 0);
AT(struct tsr_plugin, struct_size, 8);
AT(struct tsr_plugin, abi_major, 12);
AT(struct tsr_plugin, abi_minor, 14);
AT(struct tsr_plugin, id, 16);
AT(struct tsr_plugin, version, 24);
AT(struct tsr_plugin, license, 32);
AT(struct tsr_plugin, build, 40);
AT(struct tsr_plugin, components, 48);
AT(struct tsr_plugin, n_components, 56);
AT(struct tsr_plugin, needs_minor, 64);
AT(struct tsr_plugin, reserved, 68);

/* tessera/format.h */
SIZE(struct tsr_format, 136);
AT(struct tsr_format, struct_size, 0);
AT(struct tsr_format, dtype, 4);
AT(struct tsr_format, id, 8);
AT(struct tsr_format, bits, 16);
AT(struct tsr_format, zero, 20);
AT(struct tsr_format, group, 24);
AT(struct tsr_format, scale_dtype, 32);
AT(struct tsr_format, reserved, 36);
AT(struct tsr_format, element, 40);
AT(struct tsr_format, scale_bits, 44);
AT(struct tsr_format, outliers, 48);
AT(struct tsr_format, act8, 56);
AT(struct tsr_format, act8_threshold, 64);
AT(struct tsr_format, table, 72);
IS(TSR_MX_FP8_E4M3, 0x403);
IS(TSR_MX_FP8_E5M2, 0x502);
IS(TSR_MX_FP6_E3M2, 0x302);
IS(TSR_MX_FP6_E2M3, 0x203);
IS(TSR_MX_FP5_E3M1, 0x301);
IS(TSR_MX_FP5_E2M2, 0x202);
IS(TSR_MX_FP5_E1M3, 0x103);
IS(TSR_MX_FP4_E2M1, 0x201);
IS(TSR_MX_FP4_E1M2, 0x102);
IS(TSR_MX_FP3_E1M1, 0x101);
IS(TSR_MX_INT(4), 3);
IS(TSR_ACT8_BLOCKS, 0);
IS(TSR_ACT8_LLM, 1);
IS(TSR_AFFINE_SUPER, 256);
IS(TSR_TABLE_SUPER, 256);
IS(TSR_TABLE_ENTRIES, 16);

/* tessera/backend_layout.h */
SIZE(struct tsr_weight_layout, 40);
AT(struct tsr_weight_layout, struct_size, 0);
AT(struct tsr_weight_layout, revision, 4);
AT(struct tsr_weight_layout, id, 8);
AT(struct tsr_weight_layout, target, 16);
AT(struct tsr_weight_layout, bytes, 24);
AT(struct tsr_weight_layout, align, 32);
SIZE(struct tsr_backend_layout_v1, 32);
AT(struct tsr_backend_layout_v1, struct_size, 0);
AT(struct tsr_backend_layout_v1, reserved, 4);
AT(struct tsr_backend_layout_v1, weight_layout, 8);
AT(struct tsr_backend_layout_v1, weight_read, 16);
AT(struct tsr_backend_layout_v1, weight_borrow, 24);
/* tessera/linalg.h */
SIZE(struct tsr_linalg_v1, 96); /* minor 0: 56 */
AT(struct tsr_linalg_v1, struct_size, 0);
AT(struct tsr_linalg_v1, reserved, 4);
AT(struct tsr_linalg_v1, ctx, 8);
AT(struct tsr_linalg_v1, syrk, 16);
AT(struct tsr_linalg_v1, gemm, 24);
AT(struct tsr_linalg_v1, cholesky, 32);
AT(struct tsr_linalg_v1, cholesky_inverse, 40);
AT(struct tsr_linalg_v1, largest_eigenvalue, 48);
AT(struct tsr_linalg_v1, triangle_inverse, 56);
AT(struct tsr_linalg_v1, hold, 64);
AT(struct tsr_linalg_v1, drop, 72);
AT(struct tsr_linalg_v1, fetch, 80);
AT(struct tsr_linalg_v1, push, 88);

/* tessera/quantizer_block.h */
SIZE(struct tsr_block_site, 96);
AT(struct tsr_block_site, struct_size, 0);
AT(struct tsr_block_site, producer, 4);
AT(struct tsr_block_site, name, 8);
AT(struct tsr_block_site, cols, 16);
AT(struct tsr_block_site, n_linears, 24);
AT(struct tsr_block_site, linears, 32);
AT(struct tsr_block_site, stats, 40);
AT(struct tsr_block_site, producer_site, 48);
AT(struct tsr_block_site, producer_linear, 56);
AT(struct tsr_block_site, takes, 64);
AT(struct tsr_block_site, matrix_cols, 72);
AT(struct tsr_block_site, matrices, 80);
AT(struct tsr_block_site, hadamard_cols, 88);
SIZE(struct tsr_block_choice, 48);
AT(struct tsr_block_choice, struct_size, 0);
AT(struct tsr_block_choice, reserved, 4);
AT(struct tsr_block_choice, scale, 8);
AT(struct tsr_block_choice, clip, 16);
AT(struct tsr_block_choice, order, 24);
AT(struct tsr_block_choice, matrix, 32);
AT(struct tsr_block_choice, hadamard, 40);
IS(TSR_TAKES_ORDER, 1);
IS(TSR_TAKES_MATRIX, 2);
IS(TSR_TAKES_HADAMARD, 4);
IS(TSR_TAKES_KEYS, 8);
REAL(TSR_BLOCK_ORTHOGONAL, 1e-6);
SIZE(struct tsr_block, 48);
AT(struct tsr_block, struct_size, 0);
AT(struct tsr_block, reserved, 4);
AT(struct tsr_block, name, 8);
AT(struct tsr_block, n_sites, 16);
AT(struct tsr_block, sites, 24);
AT(struct tsr_block, ctx, 32);
AT(struct tsr_block, loss, 40);
SIZE(struct tsr_quantizer_block_v1, 32);
AT(struct tsr_quantizer_block_v1, struct_size, 0);
AT(struct tsr_quantizer_block_v1, reserved, 4);
AT(struct tsr_quantizer_block_v1, block_need, 8);
AT(struct tsr_quantizer_block_v1, clip_group, 16);
AT(struct tsr_quantizer_block_v1, search, 24);

/* tessera/quantizer_tune.h */
SIZE(struct tsr_tune_trial, 40);
AT(struct tsr_tune_trial, struct_size, 0);
AT(struct tsr_tune_trial, reserved, 4);
AT(struct tsr_tune_trial, linears, 8);
AT(struct tsr_tune_trial, gradients, 16);
AT(struct tsr_tune_trial, output, 24);
AT(struct tsr_tune_trial, mse, 32);
SIZE(struct tsr_tune_block, 104);
AT(struct tsr_tune_block, struct_size, 0);
AT(struct tsr_tune_block, reserved, 4);
AT(struct tsr_tune_block, name, 8);
AT(struct tsr_tune_block, n_linears, 16);
AT(struct tsr_tune_block, linears, 24);
AT(struct tsr_tune_block, sequences, 32);
AT(struct tsr_tune_block, tokens, 40);
AT(struct tsr_tune_block, hidden, 48);
AT(struct tsr_tune_block, inputs, 56);
AT(struct tsr_tune_block, outputs, 64);
AT(struct tsr_tune_block, budget, 72);
AT(struct tsr_tune_block, no_gradients, 80);
AT(struct tsr_tune_block, ctx, 88);
AT(struct tsr_tune_block, run, 96);
SIZE(struct tsr_tune_packed, 24);
AT(struct tsr_tune_packed, struct_size, 0);
AT(struct tsr_tune_packed, reserved, 4);
AT(struct tsr_tune_packed, codes, 8);
AT(struct tsr_tune_packed, meta, 16);
SIZE(struct tsr_quantizer_tune_v1, 24);
AT(struct tsr_quantizer_tune_v1, struct_size, 0);
AT(struct tsr_quantizer_tune_v1, reserved, 4);
AT(struct tsr_quantizer_tune_v1, budget, 8);
AT(struct tsr_quantizer_tune_v1, tune, 16);

/* tessera/kernel.h */
SIZE(struct tsr_kernel_weight, 112);
AT(struct tsr_kernel_weight, struct_size, 0);
AT(struct tsr_kernel_weight, dtype, 4);
AT(struct tsr_kernel_weight, rows, 8);
AT(struct tsr_kernel_weight, cols, 16);
AT(struct tsr_kernel_weight, first_row, 24);
AT(struct tsr_kernel_weight, n_rows, 32);
AT(struct tsr_kernel_weight, first_col, 40);
AT(struct tsr_kernel_weight, n_cols, 48);
AT(struct tsr_kernel_weight, segment, 56);
AT(struct tsr_kernel_weight, codes, 64);
AT(struct tsr_kernel_weight, meta, 72);
AT(struct tsr_kernel_weight, prepared, 80);
AT(struct tsr_kernel_weight, prepared_row, 88);
AT(struct tsr_kernel_weight, prepared_rows, 96);
AT(struct tsr_kernel_weight, apart, 104);
SIZE(struct tsr_kernel_job, 104);
AT(struct tsr_kernel_job, struct_size, 0);
AT(struct tsr_kernel_job, reserved, 4);
AT(struct tsr_kernel_job, weight, 8);
AT(struct tsr_kernel_job, n, 16);
AT(struct tsr_kernel_job, in, 24);
AT(struct tsr_kernel_job, in_stride, 32);
AT(struct tsr_kernel_job, out, 40);
AT(struct tsr_kernel_job, out_stride, 48);
AT(struct tsr_kernel_job, out_segment, 56);
AT(struct tsr_kernel_job, scratch, 64);
AT(struct tsr_kernel_job, inputs, 72);
AT(struct tsr_kernel_job, first, 80);
AT(struct tsr_kernel_job, tokens, 88);
AT(struct tsr_kernel_job, bias, 96);
SIZE(struct tsr_quantizer_kernel_v1, 72);
AT(struct tsr_quantizer_kernel_v1, struct_size, 0);
AT(struct tsr_quantizer_kernel_v1, reserved, 4);
AT(struct tsr_quantizer_kernel_v1, scratch, 8);
AT(struct tsr_quantizer_kernel_v1, linear, 16);
AT(struct tsr_quantizer_kernel_v1, flags, 24);
AT(struct tsr_quantizer_kernel_v1, prepared, 32);
AT(struct tsr_quantizer_kernel_v1, prepare, 40);
AT(struct tsr_quantizer_kernel_v1, input_bytes, 48);
AT(struct tsr_quantizer_kernel_v1, inputs, 56);
AT(struct tsr_quantizer_kernel_v1, alike, 64);

/* tessera/quantizer_report.h */
SIZE(struct tsr_quant_prepare_report, 24);
AT(struct tsr_quant_prepare_report, struct_size, 0);
AT(struct tsr_quant_prepare_report, reserved, 4);
AT(struct tsr_quant_prepare_report, damping, 8);
AT(struct tsr_quant_prepare_report, retries, 16);
SIZE(struct tsr_quantizer_report_v1, 24);
AT(struct tsr_quantizer_report_v1, struct_size, 0);
AT(struct tsr_quantizer_report_v1, reserved, 4);
AT(struct tsr_quantizer_report_v1, quantize, 8);
AT(struct tsr_quantizer_report_v1, prepared, 16);

/* tessera/quantizer.h */
SIZE(struct tsr_matrix, 48);
AT(struct tsr_matrix, struct_size, 0);
AT(struct tsr_matrix, dtype, 4);
AT(struct tsr_matrix, name, 8);
AT(struct tsr_matrix, data, 16);
AT(struct tsr_matrix, rows, 24);
AT(struct tsr_matrix, cols, 32);
AT(struct tsr_matrix, row_stride, 40);
SIZE(struct tsr_quant_plan, 176);
AT(struct tsr_quant_plan, struct_size, 0);
AT(struct tsr_quant_plan, rows_per_unit, 4);
AT(struct tsr_quant_plan, code_bytes, 8);
AT(struct tsr_quant_plan, meta_bytes, 16);
AT(struct tsr_quant_plan, scratch_bytes, 24);
AT(struct tsr_quant_plan, need, 32);
AT(struct tsr_quant_plan, format, 40);
SIZE(struct tsr_quant_stats, 96);
AT(struct tsr_quant_stats, struct_size, 0);
AT(struct tsr_quant_stats, reserved, 4);
AT(struct tsr_quant_stats, cols, 8);
AT(struct tsr_quant_stats, tokens, 16);
AT(struct tsr_quant_stats, hessian, 24);
AT(struct tsr_quant_stats, absmax, 32);
AT(struct tsr_quant_stats, mean, 40);
AT(struct tsr_quant_stats, variance, 48);
AT(struct tsr_quant_stats, mean_abs, 56);
AT(struct tsr_quant_stats, sensitivity, 64);
AT(struct tsr_quant_stats, inputs, 72);
AT(struct tsr_quant_stats, input_rows, 80);
AT(struct tsr_quant_stats, cross, 88);
SIZE(struct tsr_quant_job, 72);
AT(struct tsr_quant_job, struct_size, 0);
AT(struct tsr_quant_job, reserved, 4);
AT(struct tsr_quant_job, first_row, 8);
AT(struct tsr_quant_job, src, 16);
AT(struct tsr_quant_job, dst, 24);
AT(struct tsr_quant_job, codes, 32);
AT(struct tsr_quant_job, meta, 40);
AT(struct tsr_quant_job, scratch, 48);
AT(struct tsr_quant_job, stats, 56);
AT(struct tsr_quant_job, prepared, 64);
SIZE(struct tsr_quantizer_v1, 96); /* minor 0: 80 */
AT(struct tsr_quantizer_v1, struct_size, 0);
AT(struct tsr_quantizer_v1, src_dtypes, 4);
AT(struct tsr_quantizer_v1, promises, 8);
AT(struct tsr_quantizer_v1, create, 16);
AT(struct tsr_quantizer_v1, destroy, 24);
AT(struct tsr_quantizer_v1, plan, 32);
AT(struct tsr_quantizer_v1, quantize, 40);
AT(struct tsr_quantizer_v1, dequantize, 48);
AT(struct tsr_quantizer_v1, prepare, 56);
AT(struct tsr_quantizer_v1, unprepare, 64);
AT(struct tsr_quantizer_v1, extension, 72);
AT(struct tsr_quantizer_v1, max_error_steps, 80);
AT(struct tsr_quantizer_v1, columns_alone, 88);

/* tessera/codec.h */
SIZE(struct tsr_codec_wire, 104);
AT(struct tsr_codec_wire, struct_size, 0);
AT(struct tsr_codec_wire, kind, 4);
AT(struct tsr_codec_wire, cols, 8);
AT(struct tsr_codec_wire, row_bytes, 16);
AT(struct tsr_codec_wire, same, 24);
AT(struct tsr_codec_wire, dtype, 28);
AT(struct tsr_codec_wire, element, 32);
AT(struct tsr_codec_wire, scale_bits, 36);
AT(struct tsr_codec_wire, rounding, 40);
AT(struct tsr_codec_wire, scale_rule, 44);
AT(struct tsr_codec_wire, block, 48);
AT(struct tsr_codec_wire, bits, 56);
AT(struct tsr_codec_wire, reserved, 60);
AT(struct tsr_codec_wire, kept, 64);
AT(struct tsr_codec_wire, feature, 72);
AT(struct tsr_codec_wire, place, 80);
AT(struct tsr_codec_wire, inv, 88);
AT(struct tsr_codec_wire, scale, 96);
SIZE(struct tsr_codec_wire_v1, 16);
AT(struct tsr_codec_wire_v1, struct_size, 0);
AT(struct tsr_codec_wire_v1, reserved, 4);
AT(struct tsr_codec_wire_v1, wire, 8);
SIZE(struct tsr_codec_job, 72);
AT(struct tsr_codec_job, struct_size, 0);
AT(struct tsr_codec_job, source, 4);
AT(struct tsr_codec_job, site, 8);
AT(struct tsr_codec_job, reserved, 12);
AT(struct tsr_codec_job, rows, 16);
AT(struct tsr_codec_job, cols, 24);
AT(struct tsr_codec_job, src, 32);
AT(struct tsr_codec_job, dst, 40);
AT(struct tsr_codec_job, wire, 48);
AT(struct tsr_codec_job, wire_bytes, 56);
AT(struct tsr_codec_job, state, 64);
SIZE(struct tsr_codec_stream_v1, 24);
AT(struct tsr_codec_stream_v1, struct_size, 0);
AT(struct tsr_codec_stream_v1, reserved, 4);
AT(struct tsr_codec_stream_v1, order, 8);
AT(struct tsr_codec_stream_v1, state_bytes, 16);
SIZE(struct tsr_codec_v1, 112);
AT(struct tsr_codec_v1, struct_size, 0);
AT(struct tsr_codec_v1, reserved, 4);
AT(struct tsr_codec_v1, create, 8);
AT(struct tsr_codec_v1, destroy, 16);
AT(struct tsr_codec_v1, exactness, 24);
AT(struct tsr_codec_v1, wire_bytes, 32);
AT(struct tsr_codec_v1, encode, 40);
AT(struct tsr_codec_v1, decode, 48);
AT(struct tsr_codec_v1, decode_add, 56);
AT(struct tsr_codec_v1, observe, 64);
AT(struct tsr_codec_v1, freeze, 72);
AT(struct tsr_codec_v1, state_bytes, 80);
AT(struct tsr_codec_v1, save, 88);
AT(struct tsr_codec_v1, load, 96);
AT(struct tsr_codec_v1, extension, 104);

/* tessera/transport.h */
SIZE(struct tsr_transport_world, 56); /* minor 0: 32 */
AT(struct tsr_transport_world, struct_size, 0);
AT(struct tsr_transport_world, rank, 4);
AT(struct tsr_transport_world, ranks, 8);
AT(struct tsr_transport_world, reserved, 12);
AT(struct tsr_transport_world, shared, 16);
AT(struct tsr_transport_world, shared_bytes, 24);
AT(struct tsr_transport_world, epoch, 32);
AT(struct tsr_transport_world, via, 40);
AT(struct tsr_transport_world, via_self, 48);
SIZE(struct tsr_transport_counts, 32);
AT(struct tsr_transport_counts, struct_size, 0);
AT(struct tsr_transport_counts, reserved, 4);
AT(struct tsr_transport_counts, sent, 8);
AT(struct tsr_transport_counts, received, 16);
AT(struct tsr_transport_counts, refused, 24);
SIZE(struct tsr_transport_counts_v1, 16);
AT(struct tsr_transport_counts_v1, struct_size, 0);
AT(struct tsr_transport_counts_v1, reserved, 4);
AT(struct tsr_transport_counts_v1, read, 8);
SIZE(struct tsr_transport_device_v1, 24);
AT(struct tsr_transport_device_v1, struct_size, 0);
AT(struct tsr_transport_device_v1, reserved, 4);
AT(struct tsr_transport_device_v1, queued, 8);
AT(struct tsr_transport_device_v1, place, 16);
SIZE(struct tsr_transport_v1, 112); /* minor 0: 96 */
AT(struct tsr_transport_v1, struct_size, 0);
AT(struct tsr_transport_v1, reserved, 4);
AT(struct tsr_transport_v1, world_bytes, 8);
AT(struct tsr_transport_v1, create, 16);
AT(struct tsr_transport_v1, destroy, 24);
AT(struct tsr_transport_v1, send, 32);
AT(struct tsr_transport_v1, recv, 40);
AT(struct tsr_transport_v1, all_gather, 48);
AT(struct tsr_transport_v1, all_to_all, 56);
AT(struct tsr_transport_v1, test, 64);
AT(struct tsr_transport_v1, wait, 72);
AT(struct tsr_transport_v1, abort, 80);
AT(struct tsr_transport_v1, extension, 88);
AT(struct tsr_transport_v1, via, 96);
AT(struct tsr_transport_v1, needs, 104);
IS(TSR_TRANSPORT_THREADS, 1);
IS(TSR_TRANSPORT_STATICS, 2);

/* tessera/solver.h */
SIZE(struct tsr_solver_kind, 48);
AT(struct tsr_solver_kind, struct_size, 0);
AT(struct tsr_solver_kind, count, 4);
AT(struct tsr_solver_kind, name, 8);
AT(struct tsr_solver_kind, capacity_bytes, 16);
AT(struct tsr_solver_kind, host_capacity_bytes, 24);
AT(struct tsr_solver_kind, pool, 32);
AT(struct tsr_solver_kind, takes, 40);
SIZE(struct tsr_solver_option, 128);
AT(struct tsr_solver_option, struct_size, 0);
AT(struct tsr_solver_option, reserved, 4);
AT(struct tsr_solver_option, prefill_mb, 8);
AT(struct tsr_solver_option, decode_mb, 16);
AT(struct tsr_solver_option, pre_ms, 24);
AT(struct tsr_solver_option, dec_ms, 32);
AT(struct tsr_solver_option, embed_pre_ms, 40);
AT(struct tsr_solver_option, embed_dec_ms, 48);
AT(struct tsr_solver_option, head_pre_ms, 56);
AT(struct tsr_solver_option, head_dec_ms, 64);
AT(struct tsr_solver_option, comm_pre_ms, 72);
AT(struct tsr_solver_option, comm_dec_ms, 80);
AT(struct tsr_solver_option, workspace_bytes, 88);
AT(struct tsr_solver_option, prefill_jobs, 96);
AT(struct tsr_solver_option, embed_bytes, 104);
AT(struct tsr_solver_option, head_bytes, 112);
AT(struct tsr_solver_option, omega, 120);
SIZE(struct tsr_solver_instance, 256);
AT(struct tsr_solver_instance, struct_size, 0);
AT(struct tsr_solver_instance, objective, 4);
AT(struct tsr_solver_instance, layers, 8);
AT(struct tsr_solver_instance, classes, 16);
AT(struct tsr_solver_instance, bits, 24);
AT(struct tsr_solver_instance, n_kinds, 32);
AT(struct tsr_solver_instance, n_options, 40);
AT(struct tsr_solver_instance, layer_class, 48);
AT(struct tsr_solver_instance, bit_names, 56);
AT(struct tsr_solver_instance, layer_bytes, 64);
AT(struct tsr_solver_instance, omega, 72);
AT(struct tsr_solver_instance, theta, 80);
AT(struct tsr_solver_instance, max_omega, 88);
AT(struct tsr_solver_instance, batch, 96);
AT(struct tsr_solver_instance, tokens, 104);
AT(struct tsr_solver_instance, kinds, 112);
AT(struct tsr_solver_instance, order, 120);
AT(struct tsr_solver_instance, order_len, 128);
AT(struct tsr_solver_instance, allow_unused, 136);
AT(struct tsr_solver_instance, reserved, 140);
AT(struct tsr_solver_instance, embed_bytes, 144);
AT(struct tsr_solver_instance, head_bytes, 152);
AT(struct tsr_solver_instance, options, 160);
AT(struct tsr_solver_instance, gap, 168);
AT(struct tsr_solver_instance, deadline_us, 176);
AT(struct tsr_solver_instance, seed, 184);
AT(struct tsr_solver_instance, cutoff, 192);
AT(struct tsr_solver_instance, host_bytes, 200);
AT(struct tsr_solver_instance, n_pools, 208);
AT(struct tsr_solver_instance, pool_devices, 216);
AT(struct tsr_solver_instance, kind_omega, 224);
AT(struct tsr_solver_instance, n_links, 232);
AT(struct tsr_solver_instance, link_omega, 240);
AT(struct tsr_solver_instance, max_first_ms, 248);
SIZE(struct tsr_solver_solution, 104);
AT(struct tsr_solver_solution, struct_size, 0);
AT(struct tsr_solver_solution, status, 4);
AT(struct tsr_solver_solution, objective, 8);
AT(struct tsr_solver_solution, bound, 16);
AT(struct tsr_solver_solution, option, 24);
AT(struct tsr_solver_solution, stages, 32);
AT(struct tsr_solver_solution, max_stages, 40);
AT(struct tsr_solver_solution, stage_kind, 48);
AT(struct tsr_solver_solution, stage_first, 56);
AT(struct tsr_solver_solution, stage_count, 64);
AT(struct tsr_solver_solution, layer_bits, 72);
AT(struct tsr_solver_solution, reason, 80);
AT(struct tsr_solver_solution, reason_cap, 88);
AT(struct tsr_solver_solution, stage_link, 96);
SIZE(struct tsr_solver_v1, 48);
AT(struct tsr_solver_v1, struct_size, 0);
AT(struct tsr_solver_v1, reserved, 4);
AT(struct tsr_solver_v1, supports, 8);
AT(struct tsr_solver_v1, create, 16);
AT(struct tsr_solver_v1, destroy, 24);
AT(struct tsr_solver_v1, solve, 32);
AT(struct tsr_solver_v1, extension, 40);

/* tessera/backend.h */
SIZE(struct tsr_tensor, 48);
AT(struct tsr_tensor, struct_size, 0);
AT(struct tsr_tensor, dtype, 4);
AT(struct tsr_tensor, buffer, 8);
AT(struct tsr_tensor, offset, 16);
AT(struct tsr_tensor, rows, 24);
AT(struct tsr_tensor, cols, 32);
AT(struct tsr_tensor, row_stride, 40);
SIZE(struct tsr_op, 112);
AT(struct tsr_op, struct_size, 0);
AT(struct tsr_op, kind, 4);
AT(struct tsr_op, out, 8);
AT(struct tsr_op, in, 16);
AT(struct tsr_op, weight, 56);
AT(struct tsr_op, act, 64);
AT(struct tsr_op, norm, 68);
AT(struct tsr_op, func, 72);
AT(struct tsr_op, heads, 76);
AT(struct tsr_op, kv_heads, 80);
AT(struct tsr_op, head_dim, 84);
AT(struct tsr_op, rotary_dim, 88);
AT(struct tsr_op, window, 92);
AT(struct tsr_op, eps, 96);
AT(struct tsr_op, gain_offset, 100);
AT(struct tsr_op, scale, 104);
AT(struct tsr_op, softcap, 108);
SIZE(struct tsr_weight_desc, 80);
AT(struct tsr_weight_desc, struct_size, 0);
AT(struct tsr_weight_desc, reserved, 4);
AT(struct tsr_weight_desc, name, 8);
AT(struct tsr_weight_desc, format, 16);
AT(struct tsr_weight_desc, rows, 24);
AT(struct tsr_weight_desc, cols, 32);
AT(struct tsr_weight_desc, codes, 40);
AT(struct tsr_weight_desc, meta, 48);
AT(struct tsr_weight_desc, code_stride, 56);
AT(struct tsr_weight_desc, meta_stride, 64);
AT(struct tsr_weight_desc, segment, 72);
SIZE(struct tsr_backend_props, 32);
AT(struct tsr_backend_props, struct_size, 0);
AT(struct tsr_backend_props, deterministic, 4);
AT(struct tsr_backend_props, device, 8);
AT(struct tsr_backend_props, memory_bytes, 16);
AT(struct tsr_backend_props, free_bytes, 24);
SIZE(struct tsr_backend_v1, 112);
AT(struct tsr_backend_v1, struct_size, 0);
AT(struct tsr_backend_v1, reserved, 4);
AT(struct tsr_backend_v1, create, 8);
AT(struct tsr_backend_v1, destroy, 16);
AT(struct tsr_backend_v1, properties, 24);
AT(struct tsr_backend_v1, buffer_alloc, 32);
AT(struct tsr_backend_v1, buffer_free, 40);
AT(struct tsr_backend_v1, upload, 48);
AT(struct tsr_backend_v1, download, 56);
AT(struct tsr_backend_v1, weight_load, 64);
AT(struct tsr_backend_v1, weight_free, 72);
AT(struct tsr_backend_v1, weight_bytes, 80);
AT(struct tsr_backend_v1, run, 88);
AT(struct tsr_backend_v1, sync, 96);
AT(struct tsr_backend_v1, extension, 104);

/* tessera/backend_candidates.h */
IS(TSR_CANDIDATES_MOST, 256);
TEXT(TSR_BACKEND_CANDIDATES, "tessera.backend.candidates/1");
SIZE(struct tsr_candidate, 8);
AT(struct tsr_candidate, id, 0);
AT(struct tsr_candidate, logit, 4);
SIZE(struct tsr_candidate_row, 8);
AT(struct tsr_candidate_row, sum, 0);
AT(struct tsr_candidate_row, not_finite, 4);
SIZE(struct tsr_backend_candidates_v1, 24);
AT(struct tsr_backend_candidates_v1, struct_size, 0);
AT(struct tsr_backend_candidates_v1, reserved, 4);
AT(struct tsr_backend_candidates_v1, reserve, 8);
AT(struct tsr_backend_candidates_v1, find, 16);

/* tessera/backend_codec.h */
SIZE(struct tsr_backend_codec_v1, 80);
AT(struct tsr_backend_codec_v1, struct_size, 0);
AT(struct tsr_backend_codec_v1, reserved, 4);
AT(struct tsr_backend_codec_v1, stream_open, 8);
AT(struct tsr_backend_codec_v1, stream_close, 16);
AT(struct tsr_backend_codec_v1, stream_behind, 24);
AT(struct tsr_backend_codec_v1, address, 32);
AT(struct tsr_backend_codec_v1, place, 40);
AT(struct tsr_backend_codec_v1, wire_load, 48);
AT(struct tsr_backend_codec_v1, wire_free, 56);
AT(struct tsr_backend_codec_v1, encode, 64);
AT(struct tsr_backend_codec_v1, decode, 72);

/* tessera/here.h */
SIZE(struct tsr_here_v1, 16);
AT(struct tsr_here_v1, struct_size, 0);
AT(struct tsr_here_v1, reserved, 4);
AT(struct tsr_here_v1, rank, 8);
AT(struct tsr_here_v1, ranks, 12);

/* constants */
IS(TSR_ABI_MAJOR, 1);
IS(TSR_PLUGIN_MAGIC, UINT64_C(0x314e474c50525354));
IS(TSR_OK, 0);
IS(TSR_E_INVAL, -1);
IS(TSR_E_CONFIG, -2);
IS(TSR_E_UNSUPPORTED, -3);
IS(TSR_E_NOMEM, -4);
IS(TSR_E_IO, -5);
IS(TSR_E_DEVICE, -6);
IS(TSR_E_NUMERIC, -7);
IS(TSR_E_CANCELLED, -8);
IS(TSR_LOG_DEBUG, 0);
IS(TSR_LOG_INFO, 1);
IS(TSR_LOG_WARN, 2);
IS(TSR_OPT_BOOL, 1u);
IS(TSR_OPT_INT, 2u);
IS(TSR_OPT_REAL, 3u);
IS(TSR_OPT_ENUM, 4u);
IS(TSR_OPT_STRING, 5u);
IS(TSR_OPT_REQUIRED, 1u);
IS(TSR_OPT_ADVANCED, 2u);
IS(TSR_OPT_JSON, 4u);
IS(TSR_F32, 1u);
IS(TSR_F16, 2u);
IS(TSR_BF16, 3u);
IS(TSR_U8, 4u);
IS(TSR_U32, 5u);
IS(TSR_I8, 6u);
IS(TSR_E4M3, 7u);
IS(TSR_Q4, 8u);
IS(TSR_Q4_CHANNEL, 9u);
IS(TSR_KV_GROUP, 32u);
IS(TSR_KV_BLOCK, 32u);
IS(TSR_ZERO_MID, 0u);
IS(TSR_ZERO_STORED, 1u);
IS(TSR_NEED_HESSIAN, (UINT64_C(1) << 0));
IS(TSR_NEED_ABSMAX, (UINT64_C(1) << 1));
IS(TSR_NEED_MEAN, (UINT64_C(1) << 2));
IS(TSR_NEED_VARIANCE, (UINT64_C(1) << 3));
IS(TSR_NEED_MEAN_ABS, (UINT64_C(1) << 4));
IS(TSR_NEED_SENSITIVITY, (UINT64_C(1) << 5));
IS(TSR_NEED_INPUTS, (UINT64_C(1) << 6));
IS(TSR_NEED_CROSS, (UINT64_C(1) << 7));
IS(TSR_QUANT_DETERMINISTIC, (UINT64_C(1) << 0));
IS(TSR_QUANT_IDEMPOTENT, (UINT64_C(1) << 1));
IS(TSR_PRODUCER_NONE, 0u);
IS(TSR_PRODUCER_NORM, 1u);
IS(TSR_PRODUCER_LINEAR, 2u);
IS(TSR_CODEC_EXACT, 0u);
IS(TSR_CODEC_LOSSY, 1u);
IS(TSR_CODEC_ORDER_PASS, 1u);
IS(TSR_CODEC_ORDER_REQUIRED, 2u);
IS(TSR_CODEC_ENCODES, 0u);
IS(TSR_CODEC_DECODES, 1u);
IS(TSR_WIRE_PLAIN, 1u);
IS(TSR_WIRE_MX, 2u);
IS(TSR_WIRE_SCALED, 3u);
IS(TSR_WIRE_NEAREST, 0u);
IS(TSR_WIRE_EVEN, 1u);
IS(TSR_WIRE_FLOOR, 2u);
IS(TSR_WIRE_SCALE_FLOOR, 0u);
IS(TSR_WIRE_SCALE_EVEN, 1u);
IS(TSR_WIRE_SCALE_CEIL, 2u);
IS(TSR_OBJECTIVE_STEADY, 0u);
IS(TSR_OBJECTIVE_PAPER, 1u);
IS(TSR_SOLVER_CLASSES, (UINT64_C(1) << 0));
IS(TSR_SOLVER_MAX_OMEGA, (UINT64_C(1) << 1));
IS(TSR_SOLVER_LINKS, (UINT64_C(1) << 2));
IS(TSR_SOLVER_USE_ALL, (UINT64_C(1) << 3));
IS(TSR_SOLVER_FORBIDDEN, (UINT64_C(1) << 4));
IS(TSR_SOLVER_WORKSPACE, (UINT64_C(1) << 5));
IS(TSR_SOLVER_ENDS, (UINT64_C(1) << 6));
IS(TSR_SOLVER_FIXED_ORDER, (UINT64_C(1) << 7));
IS(TSR_SOLVER_HOST, (UINT64_C(1) << 8));
IS(TSR_SOLVER_JOBS, (UINT64_C(1) << 9));
IS(TSR_SOLVER_POOLS, (UINT64_C(1) << 10));
IS(TSR_SOLVER_KIND_OMEGA, (UINT64_C(1) << 11));
IS(TSR_SOLVER_LINK_CODECS, (UINT64_C(1) << 12));
IS(TSR_SOLVER_OPTION_ENDS, (UINT64_C(1) << 13));
IS(TSR_SOLVER_MAX_FIRST, (UINT64_C(1) << 14));
IS(TSR_SOLVER_ISOLATED, (UINT64_C(1) << 63));
IS(TSR_SOLVED_OPTIMAL, 0u);
IS(TSR_SOLVED_FEASIBLE, 1u);
IS(TSR_SOLVED_INFEASIBLE, 2u);
IS(TSR_SOLVED_UNKNOWN, 3u);
IS(TSR_ACT_F32, 0u);
IS(TSR_ACT_A16, 1u);
IS(TSR_ACT_A8, 2u);
IS(TSR_NORM_RMS, 0u);
IS(TSR_NORM_LAYER, 1u);
IS(TSR_ROPE_HALVES, 0u);
IS(TSR_ROPE_ADJACENT, 1u);
IS(TSR_FUNC_SILU, 0u);
IS(TSR_FUNC_GELU_TANH, 1u);
IS(TSR_FUNC_GELU_ERF, 2u);
IS(TSR_FUNC_RELU, 3u);
IS(TSR_FUNC_CLAMPED, 4u);
IS(TSR_OP_LINEAR, 1u);
IS(TSR_OP_EMBED, 2u);
IS(TSR_OP_NORM, 3u);
IS(TSR_OP_ROPE, 4u);
IS(TSR_OP_KV_STORE, 5u);
IS(TSR_OP_ATTENTION, 6u);
IS(TSR_OP_ACT, 7u);
IS(TSR_OP_ADD, 8u);
IS(TSR_OP_SCALE, 9u);
IS(TSR_OP_GATHER, 10u);
IS(TSR_OP_MIX, 11u);
IS(TSR_OP_COLUMNS, 12u);
IS(TSR_OP_HADAMARD, 13u);
IS(TSR_HADAMARD_BASE, 64);
IS(TSR_OP_INPUTS, 5);
TEXT(TSR_KIND_QUANTIZER, "tessera.quantizer/1");
TEXT(TSR_KIND_CODEC, "tessera.codec/1");
TEXT(TSR_KIND_TRANSPORT, "tessera.transport/1");
TEXT(TSR_KIND_SOLVER, "tessera.solver/1");
TEXT(TSR_KIND_BACKEND, "tessera.backend/1");
TEXT(TSR_QUANTIZER_BLOCK, "tessera.quantizer.block/1");
TEXT(TSR_QUANTIZER_REPORT, "tessera.quantizer.report/1");
TEXT(TSR_QUANTIZER_TUNE, "tessera.quantizer.tune/1");
TEXT(TSR_QUANTIZER_KERNEL, "tessera.kernel/1");
IS(TSR_KERNEL_ADDS, 1);
IS(TSR_KERNEL_PAIRS, 2);
TEXT(TSR_BACKEND_LAYOUT, "tessera.backend.layout/1");
TEXT(TSR_LINALG, "tessera.linalg/1");
TEXT(TSR_HERE, "tessera.here/1");
TEXT(TSR_BACKEND_CODEC, "tessera.backend.codec/1");
TEXT(TSR_CODEC_COUPLED, "tessera.codec.coupled/1");
TEXT(TSR_CODEC_WIRE, "tessera.codec.wire/1");
TEXT(TSR_CODEC_STREAM, "tessera.codec.stream/1");
TEXT(TSR_TRANSPORT_COUNTS, "tessera.transport.counts/1");
TEXT(TSR_TRANSPORT_DEVICE, "tessera.transport.device/1");
TEXT(TSR_FORMAT_FLOAT, "tessera.float/1");
TEXT(TSR_FORMAT_INT, "tessera.int/1");
TEXT(TSR_FORMAT_AFFINE, "tessera.int/2");
TEXT(TSR_FORMAT_LUT, "tessera.lut/1");
TEXT(TSR_FORMAT_MX, "tessera.mx/1");
TEXT(TSR_FORMAT_FP8, "tessera.fp8/1");
TEXT(TSR_FORMAT_TABLE, "tessera.table/1");

/* tessera/step.h */
SIZE(struct tsr_step_value, 56);
AT(struct tsr_step_value, struct_size, 0);
AT(struct tsr_step_value, type, 4);
AT(struct tsr_step_value, number, 8);
AT(struct tsr_step_value, text, 16);
AT(struct tsr_step_value, key, 24);
AT(struct tsr_step_value, n, 32);
AT(struct tsr_step_value, node, 40);
AT(struct tsr_step_value, tree, 48);
SIZE(struct tsr_step_model, 96);
AT(struct tsr_step_model, struct_size, 0);
AT(struct tsr_step_model, reserved, 4);
AT(struct tsr_step_model, family, 8);
AT(struct tsr_step_model, hash, 16);
AT(struct tsr_step_model, layers, 24);
AT(struct tsr_step_model, hidden, 32);
AT(struct tsr_step_model, vocab, 40);
AT(struct tsr_step_model, heads, 48);
AT(struct tsr_step_model, kv_heads, 56);
AT(struct tsr_step_model, head_dim, 64);
AT(struct tsr_step_model, positions, 72);
AT(struct tsr_step_model, parameters, 80);
AT(struct tsr_step_model, matrices, 88);
SIZE(struct tsr_step_matrix, 48);
AT(struct tsr_step_matrix, struct_size, 0);
AT(struct tsr_step_matrix, dtype, 4);
AT(struct tsr_step_matrix, name, 8);
AT(struct tsr_step_matrix, format, 16);
AT(struct tsr_step_matrix, layer, 24);
AT(struct tsr_step_matrix, rows, 32);
AT(struct tsr_step_matrix, cols, 40);
SIZE(struct tsr_step_evaluation, 88);
AT(struct tsr_step_evaluation, struct_size, 0);
AT(struct tsr_step_evaluation, kl, 4);
AT(struct tsr_step_evaluation, text, 8);
AT(struct tsr_step_evaluation, protocol, 16);
AT(struct tsr_step_evaluation, window, 24);
AT(struct tsr_step_evaluation, max_windows, 32);
AT(struct tsr_step_evaluation, perplexity, 40);
AT(struct tsr_step_evaluation, mean_nll, 48);
AT(struct tsr_step_evaluation, kl_mean, 56);
AT(struct tsr_step_evaluation, top1, 64);
AT(struct tsr_step_evaluation, tokens, 72);
AT(struct tsr_step_evaluation, scored, 80);
SIZE(struct tsr_step_job, 168);
AT(struct tsr_step_job, struct_size, 0);
AT(struct tsr_step_job, reserved, 4);
AT(struct tsr_step_job, ctx, 8);
AT(struct tsr_step_job, input, 16);
AT(struct tsr_step_job, member, 24);
AT(struct tsr_step_job, item, 32);
AT(struct tsr_step_job, problem, 40);
AT(struct tsr_step_job, read, 48);
AT(struct tsr_step_job, file, 56);
AT(struct tsr_step_job, put, 64);
AT(struct tsr_step_job, number, 72);
AT(struct tsr_step_job, write, 80);
AT(struct tsr_step_job, text, 88);
AT(struct tsr_step_job, figure, 96);
AT(struct tsr_step_job, table, 104);
AT(struct tsr_step_job, row, 112);
AT(struct tsr_step_job, model, 120);
AT(struct tsr_step_job, matrix, 128);
AT(struct tsr_step_job, rows, 136);
AT(struct tsr_step_job, logits, 144);
AT(struct tsr_step_job, tokens, 152);
AT(struct tsr_step_job, evaluate, 160);
SIZE(struct tsr_step_product, 24);
AT(struct tsr_step_product, struct_size, 0);
AT(struct tsr_step_product, form, 4);
AT(struct tsr_step_product, name, 8);
AT(struct tsr_step_product, help, 16);
SIZE(struct tsr_step_v1, 88);
AT(struct tsr_step_v1, struct_size, 0);
AT(struct tsr_step_v1, reserved, 4);
AT(struct tsr_step_v1, needs, 8);
AT(struct tsr_step_v1, inputs, 16);
AT(struct tsr_step_v1, n_inputs, 24);
AT(struct tsr_step_v1, products, 32);
AT(struct tsr_step_v1, n_products, 40);
AT(struct tsr_step_v1, create, 48);
AT(struct tsr_step_v1, destroy, 56);
AT(struct tsr_step_v1, run, 64);
AT(struct tsr_step_v1, check, 72);
AT(struct tsr_step_v1, extension, 80);
TEXT(TSR_KIND_STEP, "tessera.step/1");
IS(TSR_STEP_MODEL, 1);
IS(TSR_STEP_TOKENIZER, 2);
IS(TSR_STEP_ABSENT, 0);
IS(TSR_STEP_NULL, 1);
IS(TSR_STEP_BOOL, 2);
IS(TSR_STEP_NUMBER, 3);
IS(TSR_STEP_TEXT, 4);
IS(TSR_STEP_LIST, 5);
IS(TSR_STEP_MAP, 6);
IS(TSR_STEP_ORIGINAL, 0);
IS(TSR_STEP_PACKED, 1);
IS(TSR_STEP_JSON, 1);
IS(TSR_STEP_FILE, 2);

/* ---- kv.h --------------------------------------------------------------------------- */

SIZE(struct tsr_kv_layout, 32);
AT(struct tsr_kv_layout, struct_size, 0);
AT(struct tsr_kv_layout, positions, 4);
AT(struct tsr_kv_layout, bytes, 8);
AT(struct tsr_kv_layout, error, 16);
AT(struct tsr_kv_layout, type, 24);
AT(struct tsr_kv_layout, reserved, 28);
SIZE(struct tsr_kv_v1, 72);
AT(struct tsr_kv_v1, struct_size, 0);
AT(struct tsr_kv_v1, reserved, 4);
AT(struct tsr_kv_v1, create, 8);
AT(struct tsr_kv_v1, destroy, 16);
AT(struct tsr_kv_v1, layout, 24);
AT(struct tsr_kv_v1, encode, 32);
AT(struct tsr_kv_v1, decode, 40);
AT(struct tsr_kv_v1, score, 48);
AT(struct tsr_kv_v1, mix, 56);
AT(struct tsr_kv_v1, extension, 64);
TEXT(TSR_KIND_KV, "tessera.kv/1");
IS(TSR_KV_KEYS, 0);
IS(TSR_KV_VALUES, 1);

/* ---- sampler.h ------------------------------------------------------------------------- */

SIZE(struct tsr_sampler_tokens, 40);
AT(struct tsr_sampler_tokens, struct_size, 0);
AT(struct tsr_sampler_tokens, reserved, 4);
AT(struct tsr_sampler_tokens, vocab, 8);
AT(struct tsr_sampler_tokens, bytes, 16);
AT(struct tsr_sampler_tokens, start, 24);
AT(struct tsr_sampler_tokens, ends, 32);
SIZE(struct tsr_sampler_sizes, 24);
AT(struct tsr_sampler_sizes, struct_size, 0);
AT(struct tsr_sampler_sizes, reserved, 4);
AT(struct tsr_sampler_sizes, state_bytes, 8);
AT(struct tsr_sampler_sizes, scratch_bytes, 16);
SIZE(struct tsr_sampler_request, 48);
AT(struct tsr_sampler_request, struct_size, 0);
AT(struct tsr_sampler_request, reserved, 4);
AT(struct tsr_sampler_request, vocab, 8);
AT(struct tsr_sampler_request, prompt, 16);
AT(struct tsr_sampler_request, n_prompt, 24);
AT(struct tsr_sampler_request, seed, 32);
AT(struct tsr_sampler_request, record, 40);
SIZE(struct tsr_sampler_job, 88);
AT(struct tsr_sampler_job, struct_size, 0);
AT(struct tsr_sampler_job, reserved, 4);
AT(struct tsr_sampler_job, vocab, 8);
AT(struct tsr_sampler_job, logits, 16);
AT(struct tsr_sampler_job, history, 24);
AT(struct tsr_sampler_job, n_prompt, 32);
AT(struct tsr_sampler_job, n_history, 40);
AT(struct tsr_sampler_job, seed, 48);
AT(struct tsr_sampler_job, record, 56);
AT(struct tsr_sampler_job, uniform, 64);
AT(struct tsr_sampler_job, state, 72);
AT(struct tsr_sampler_job, scratch, 80);
SIZE(struct tsr_sampler_v1, 80);
AT(struct tsr_sampler_v1, struct_size, 0);
AT(struct tsr_sampler_v1, reserved, 4);
AT(struct tsr_sampler_v1, needs, 8);
AT(struct tsr_sampler_v1, create, 16);
AT(struct tsr_sampler_v1, destroy, 24);
AT(struct tsr_sampler_v1, tokens, 32);
AT(struct tsr_sampler_v1, sizes, 40);
AT(struct tsr_sampler_v1, start, 48);
AT(struct tsr_sampler_v1, sample, 56);
AT(struct tsr_sampler_v1, accept, 64);
AT(struct tsr_sampler_v1, extension, 72);
TEXT(TSR_KIND_SAMPLER, "tessera.sampler/1");
IS(TSR_SAMPLER_TOKENS, 1);
IS(TSR_SAMPLER_NONE, 0xffffffffu);
IS(TSR_SAMPLER_END, 0xfffffffeu);

/* ---- threads.h ------------------------------------------------------------------------- */

SIZE(struct tsr_threads_v1, 16);
AT(struct tsr_threads_v1, struct_size, 0);
AT(struct tsr_threads_v1, reserved, 4);
AT(struct tsr_threads_v1, count, 8);
TEXT(TSR_THREADS, "tessera.threads/1");
