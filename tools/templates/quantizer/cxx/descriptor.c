#include "@NAME@.h"
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct options, group, 128, 1, 65536, "columns", "Columns that share a step."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof options[0],
    .kind = TSR_KIND_QUANTIZER, .name = "@NAME@", .iface = &table,
    .summary = "Round to nearest, a step for each group of columns.",
    .options = options, .n_options = 2, .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
