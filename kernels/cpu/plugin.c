/* plugin.c - the component "cpu". */
#include "backend.h"

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)opts;
    return tsr_cpu_create(host, &tsr_cpu_memory_plain, self, err);
}

static const struct tsr_backend_v1 table = { TSR_CPU_TABLE, .create = create };

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_BACKEND,
    .name = "cpu",
    .summary = "This machine's CPU: scalar, AVX2 or AVX-512 with VNNI, the same bytes on each.",
    .iface = &table,
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(cpu) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.cpu",  .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,
};
