/* plugin_simt.c - component "simt": the CUDA backend on the emulated device, for tests. */
#include "../backend.h"

struct simt_options {
    int64_t seed, numerics, launching;
};

static const struct tsr_choice numerics[] = {
    { "exact", "the bytes of the CPU", TSR_CUDA_EXACT },
    { "fast", "prompts by products in 16 bits", TSR_CUDA_FAST },
    { "auto", "the same, but those of int8 activations stay exact", TSR_CUDA_AUTO },
};
static const struct tsr_choice launching[] = {
    { "graphs", "lists of launches that come again as graphs", TSR_CUDA_GRAPHS },
    { "single", "one by one", TSR_CUDA_ONE_BY_ONE },
    { "wait", "one by one, each waited for", TSR_CUDA_AND_WAIT },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct simt_options, seed, 0, 0, INT64_MAX, NULL,
                   "Draws the schedules of the threads; 0: in order."),
    TSR_OPTION_ENUM(struct simt_options, numerics, TSR_CUDA_EXACT, numerics,
                    "How prompts are multiplied."),
    TSR_OPTION_ENUM(struct simt_options, launching, TSR_CUDA_GRAPHS, launching,
                    "How launches reach the device."),
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct simt_options *o = opts;
    struct tsr_cuda_options    all = { .seed = o ? o->seed : 0,
                                       .numerics = o ? o->numerics : 0,
                                       .launching = o ? o->launching : TSR_CUDA_GRAPHS };
    return tsr_cuda_create(host, &tsr_cuda_simt, &all, self, err);
}

static const struct tsr_backend_v1 table = { TSR_CUDA_TABLE, .create = create };

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_BACKEND,
    .name = "simt",
    .summary = "For tests: the CUDA backend on a device that the CPU emulates.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct simt_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(simt) = {
    TSR_PLUGIN_HEADER,       .id = "org.tessera.test.simt", .version = "0.1.0",
    .license = "Apache-2.0", .build = __VERSION__,          .components = components,
    .n_components = 1,
};
