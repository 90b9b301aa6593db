#include "@NAME@.h"
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER, .name = "@NAME@", .iface = &table,
    .summary = "Fills the devices in turn and evens out their work, one bit width for all layers.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
