#include "@NAME@.h"

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(struct options, nearest, 1, "Round to nearest; otherwise towards zero."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_KV, .name = "@NAME@", .iface = &table,
    .summary = "KV cache of BF16.",
    .options = options, .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
