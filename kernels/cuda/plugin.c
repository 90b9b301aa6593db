/* plugin.c - the component "cuda". */
#include "backend.h"

struct cuda_options {
    int64_t device, weights, numerics, launching;
};

static const struct tsr_choice memories[] = {
    { "device", "in the memory of the device", TSR_CUDA_DEVICE },
    { "host", "in pinned memory of the host, read over the bus: for weights that do not fit",
      TSR_CUDA_MAPPED },
};
static const struct tsr_choice numerics[] = {
    { "exact", "the bytes of the CPU on every device: no format and no type falls back",
      TSR_CUDA_EXACT },
    { "fast",
      "more than 8 tokens of LINEAR in F16, of BF16 and MX weights in BF16 where the device has it "
      "(sm_80 "
      "and newer), and attention of prompts, on tensor cores with sums in F32; act: a8 from 256 "
      "tokens "
      "on",
      TSR_CUDA_FAST },
    { "auto",
      "as fast, but LINEAR of act: a8 is exact whatever the number of tokens, and linear algebra "
      "stays on the CPU",
      TSR_CUDA_AUTO },
};
static const struct tsr_choice launching[] = {
    { "graphs", "lists of launches that come again as one graph, where the driver has graphs",
      TSR_CUDA_GRAPHS },
    { "single", "one by one", TSR_CUDA_ONE_BY_ONE },
    { "wait", "one by one, each waited for: an error names its kernel", TSR_CUDA_AND_WAIT },
    { "overlap",
      "as graphs, whose kernels begin before the one before has ended (sm_90 and newer, drivers "
      "for "
      "CUDA 12.3 and newer)",
      TSR_CUDA_OVERLAP },
};
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct cuda_options, device, -1, -1, 255, NULL,
                   "Which device, as CUDA_VISIBLE_DEVICES leaves them; -1: the first, and of ranks "
                   "each its own, in their order on a machine."),
    TSR_OPTION_ENUM(struct cuda_options, weights, TSR_CUDA_DEVICE, memories, "Where weights lie."),
    TSR_OPTION_ENUM(struct cuda_options, numerics, TSR_CUDA_EXACT, numerics,
                    "Whether products may be made in another order and in fewer bits."),
    TSR_OPTION_ENUM(struct cuda_options, launching, TSR_CUDA_GRAPHS, launching,
                    "How launches reach the device."),
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct cuda_options *o = opts;
    struct tsr_cuda_options    all = { .device = o ? o->device : -1,
                                       .weights = o ? o->weights : 0,
                                       .numerics = o ? o->numerics : 0,
                                       .launching = o ? o->launching : TSR_CUDA_GRAPHS };
    return tsr_cuda_create(host, &tsr_cuda_driver, &all, self, err);
}

static const struct tsr_backend_v1 table = { TSR_CUDA_TABLE, .create = create };

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_BACKEND,
    .name = "cuda",
    .summary =
        "NVIDIA GPUs, under numerics: exact with the bytes of the CPU; built for " TSR_CUDA_BUILT
        ".",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct cuda_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(cuda) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.cuda", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,
};
