/* rows_cxx.c - the tables of rows_cxx.cc, in C as docs/abi.md asks. */
#include "rows_cxx.h"

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct rows_options, bits, 8, 2, 8, "bits", "Width of a code."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = rows_create,
    .destroy = rows_destroy,
    .plan = rows_plan,
    .quantize = rows_quantize,
    .dequantize = rows_dequantize,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "rows-cxx",
    .summary = "A scale per row, in C++.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct rows_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(rows_cxx) = {
    TSR_PLUGIN_HEADER,    .id = "org.example.rows-cxx", .version = "0.9.0-rc.1", .license = "MIT",
    .build = __VERSION__, .components = components,     .n_components = 1,
};
