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
const struct tsr_choice tsr_pipeline_rotate_sites[3] = {
    { .name = "both",
      .value = TSR_ROTATE_RESIDUAL | TSR_ROTATE_HEADS,
      .help = "hidden state and values" },
    { .name = "residual", .value = TSR_ROTATE_RESIDUAL, .help = "the hidden state (R1)" },
    { .name = "heads", .value = TSR_ROTATE_HEADS, .help = "the values of each head (R2)" },
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
                                        .sites = (uint32_t)k->sites,
                                        .seed = k->seed < 0 ? job->seed : (uint64_t)k->seed,
                                        .dtype = (uint32_t)k->dtype,
                                        .pool = tsr_plugin_registry_pool(job->registry) };
}

const char *tsr_pipeline_rotate_sites_name(int64_t sites)
{
    for (size_t i = 0; i < sizeof tsr_pipeline_rotate_sites / sizeof *tsr_pipeline_rotate_sites;
         i++)
        if (tsr_pipeline_rotate_sites[i].value == sites)
            return tsr_pipeline_rotate_sites[i].name;
    return "";
}
