/* The section `delta` of a family file: layers of the gated delta rule. */
#include "model/family_internal.h"

struct delta {
    const struct tsr_config_node *key_heads, *value_heads, *key_dim, *value_dim, *kernel, *layers;
    const char                   *types;
};
static const struct tsr_option delta_options[] = {
    TSR_OPTION_NODE(struct delta, key_heads, "Heads of queries and keys."),
    TSR_OPTION_NODE(struct delta, value_heads, "Heads of values, a multiple."),
    TSR_OPTION_NODE(struct delta, key_dim, "Width of a head of queries and keys."),
    TSR_OPTION_NODE(struct delta, value_dim, "Width of a head of values."),
    TSR_OPTION_NODE(struct delta, kernel, "Tokens that the convolution sees."),
    TSR_OPTION_NODE(struct delta, layers, "Layers of the delta rule."),
    { .name = "types",
      .help = "Key of a list of layer types, which wins.",
      .type = TSR_OPT_STRING,
      .offset = TSR_FIELD(struct delta, types, const char *),
      .def = { .s = "" } },
};

void tsr_family_delta(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct delta             d = { 0 };
    if (!map)
        return;
    TSR_FAMILY_FILL(r, delta_options, map, "'delta'", &d);
    f->delta.is = true;
    const struct {
        const char                   *name, *key;
        const struct tsr_config_node *node;
        struct tsr_model_value       *value;
    } sizes[] = {
        { "key_heads", "linear_num_key_heads", d.key_heads, &f->delta.key_heads },
        { "value_heads", "linear_num_value_heads", d.value_heads, &f->delta.value_heads },
        { "key_dim", "linear_key_head_dim", d.key_dim, &f->delta.key_dim },
        { "value_dim", "linear_value_head_dim", d.value_dim, &f->delta.value_dim },
        { "kernel", "linear_conv_kernel_dim", d.kernel, &f->delta.kernel },
    };
    for (size_t i = 0; i < TSR_COUNT(sizes); i++) {
        *sizes[i].value = (struct tsr_model_value){ .keys = { sizes[i].key }, .n_keys = 1 };
        tsr_family_value(r, sizes[i].node, sizes[i].name, false, sizes[i].value);
    }
    f->delta.types = tsr_family_some(d.types);
    tsr_family_rule(r, d.layers, "layers", &f->delta.layers);
}
