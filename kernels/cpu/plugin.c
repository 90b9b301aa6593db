/* plugin.c - the component "cpu". */
#include "backend.h"

struct cpu_options {
    int64_t numerics;
};

static const struct tsr_choice numerics[] = {
    { "exact", "the same bytes on every machine", 0 },
    { "fast", "BF16 products in one instruction: repeats on one machine only", 1 },
};
static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct cpu_options, numerics, 0, numerics,
                    "Whether instructions without a portable twin may run."),
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct cpu_options *o = opts;
    tsr_status                st = tsr_cpu_create(host, &tsr_cpu_memory_plain, self, err);
    if (st == TSR_OK && o && o->numerics == 1) {
        st = tsr_cpu_set_fast(*self, err);
        if (st != TSR_OK) {
            tsr_cpu_destroy(*self);
            *self = NULL;
        }
    }
    return st;
}

static const struct tsr_backend_v1 table = { TSR_CPU_TABLE, .create = create };

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_BACKEND,
    .name = "cpu",
    .summary =
        "This machine's CPU: scalar, AVX2, AVX-512 with VNNI or AMX, the same bytes on each.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct cpu_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(cpu) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.cpu",  .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,
};
