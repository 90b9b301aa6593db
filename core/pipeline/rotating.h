/* pipeline/rotating.h - the keys of a rotation, shared by the step `rotate` and the arms of a comparison. */
#ifndef TSR_PIPELINE_ROTATING_H
#define TSR_PIPELINE_ROTATING_H

#include "pipeline/pipeline.h"
#include "rotate/rotate.h"

struct tsr_pipeline_rotate_keys {
    int64_t kind, sites, online, seed, dtype;
};

extern const struct tsr_choice tsr_pipeline_rotate_kinds[2];
extern const struct tsr_choice tsr_pipeline_rotate_sites[4];
extern const struct tsr_choice tsr_pipeline_rotate_online[4];
extern const struct tsr_choice tsr_pipeline_rotate_dtypes[3];

#define TSR_PIPELINE_ROTATE_ENUM(S, f, word, d, list, h)                                           \
    {                                                                                              \
        .name = word, .help = h, .type = TSR_OPT_ENUM, .offset = TSR_FIELD(S, f, int64_t),         \
        .def = { .i = d }, .choices = list, .n_choices = sizeof(list) / sizeof *(list)             \
    }
#define TSR_PIPELINE_ROTATE_OPTIONS(S, k)                                                          \
    TSR_PIPELINE_ROTATE_ENUM(S, k.kind, "kind", TSR_ORTHOGONAL_HADAMARD,                           \
                             tsr_pipeline_rotate_kinds, "The orthogonal matrices."),               \
        TSR_PIPELINE_ROTATE_ENUM(S, k.sites, "sites", TSR_ROTATE_RESIDUAL | TSR_ROTATE_HEADS,      \
                                 tsr_pipeline_rotate_sites, "What is rotated."),                   \
        TSR_PIPELINE_ROTATE_ENUM(S, k.online, "online", 0, tsr_pipeline_rotate_online,             \
                                 "What is rotated as the model runs, by Hadamard matrices."),      \
        { .name = "seed",                                                                          \
          .help = "Draws the matrices; -1: the job's seed.",                                       \
          .type = TSR_OPT_INT,                                                                     \
          .offset = TSR_FIELD(S, k.seed, int64_t),                                                 \
          .def = { .i = -1 },                                                                      \
          .min = { .i = -1 },                                                                      \
          .max = { .i = INT64_MAX } },                                                             \
        TSR_PIPELINE_ROTATE_ENUM(S, k.dtype, "dtype", TSR_F32, tsr_pipeline_rotate_dtypes,         \
                                 "What the rotated matrices are stored as; 16 bits round them.")

struct tsr_rotate_options tsr_pipeline_rotate_options(const struct tsr_pipeline_job         *job,
                                                      const struct tsr_pipeline_rotate_keys *k);
/* Of TSR_ROTATE_*: "residual", "heads", "both" or "none"; "keys", "down", "both" or "none". */
const char *tsr_pipeline_rotate_sites_name(int64_t sites);
const char *tsr_pipeline_rotate_online_name(int64_t sites);

#endif
