/* The keys of a rotation. */
#include "pipeline/rotating.h"

#include "tessera/backend.h"

const struct tsr_choice tsr_pipeline_rotate_kinds[2] = {
    { .name = "hadamard",
      .value = TSR_ORTHOGONAL_HADAMARD,
      .help = "Hadamard with random signs: powers of two, or one times 12, 20, 28, 36, ..." },
    { .name = "random",
      .value = TSR_ORTHOGONAL_RANDOM,
      .help =
          "uniform over all orthogonal matrices, of any size; 2 n^2 operations for a row of n" },
};
const struct tsr_choice tsr_pipeline_rotate_sites[4] = {
    { .name = "both",
      .value = TSR_ROTATE_RESIDUAL | TSR_ROTATE_HEADS,
      .help = "hidden state and values" },
    { .name = "residual", .value = TSR_ROTATE_RESIDUAL, .help = "the hidden state (R1)" },
    { .name = "heads", .value = TSR_ROTATE_HEADS, .help = "the values of each head (R2)" },
    { .name = "none", .value = 0, .help = "neither; for `online` alone" },
};
const struct tsr_choice tsr_pipeline_rotate_online[4] = {
    { .name = "none", .value = 0, .help = "nothing runs with the model" },
    { .name = "keys", .value = TSR_ROTATE_KEYS, .help = "queries and keys of each head (R3)" },
    { .name = "down", .value = TSR_ROTATE_DOWN, .help = "the inputs of down_proj (R4)" },
    { .name = "both", .value = TSR_ROTATE_KEYS | TSR_ROTATE_DOWN, .help = "keys and down" },
};
const struct tsr_choice tsr_pipeline_rotate_dtypes[3] = {
    { .name = "f32", .value = TSR_F32, .help = "the function of the model is kept" },
    { .name = "bf16", .value = TSR_BF16 },
    { .name = "f16", .value = TSR_F16 },
};

struct tsr_rotate_options tsr_pipeline_rotate_options(const struct tsr_pipeline_job         *job,
                                                      const struct tsr_pipeline_rotate_keys *k)
{
    return (struct tsr_rotate_options){ .kind = (enum tsr_orthogonal_kind)k->kind,
                                        .sites = (uint32_t)(k->sites | k->online),
                                        .seed = k->seed < 0 ? job->seed : (uint64_t)k->seed,
                                        .dtype = (uint32_t)k->dtype,
                                        .pool = tsr_plugin_registry_pool(job->registry) };
}

static const char *name_of(const struct tsr_choice *list, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].value == value)
            return list[i].name;
    return "";
}

const char *tsr_pipeline_rotate_sites_name(int64_t sites)
{
    return name_of(tsr_pipeline_rotate_sites,
                   sizeof tsr_pipeline_rotate_sites / sizeof *tsr_pipeline_rotate_sites,
                   sites & (TSR_ROTATE_RESIDUAL | TSR_ROTATE_HEADS));
}

const char *tsr_pipeline_rotate_online_name(int64_t sites)
{
    return name_of(tsr_pipeline_rotate_online,
                   sizeof tsr_pipeline_rotate_online / sizeof *tsr_pipeline_rotate_online,
                   sites & (TSR_ROTATE_KEYS | TSR_ROTATE_DOWN));
}
