/* pipeline/compensating.h - options of everything that runs a model with compensation. */
#ifndef TSR_PIPELINE_COMPENSATING_H
#define TSR_PIPELINE_COMPENSATING_H

#include "compensate/compensation.h"
#include "engine/engine.h"

#include <jansson.h>

struct tsr_pipeline_compensate_keys {
    int64_t     compensate, select, positions;
    const char *compensate_plan;
    int32_t     recall;
};
enum tsr_positions_of { TSR_PIPELINE_POSITIONS_DECODE, TSR_PIPELINE_POSITIONS_ALL };
extern const struct tsr_choice tsr_positions_choices[2];

#define TSR_PIPELINE_RECALL_OPTION(S, f, fl)                                                       \
    {                                                                                              \
        .name = "recall", .help = "Report how many of the largest channels the selections have.",  \
        .type = TSR_OPT_BOOL, .flags = fl, .offset = TSR_FIELD(S, f.recall, int32_t)               \
    }
/* The other options. where: which tokens are compensated by default; fl: flags of all. */
#define TSR_PIPELINE_COMPENSATE_WAYS(S, f, where, fl)                                              \
    { .name = "compensate",                                                                        \
      .help = "Input channels of 1024 whose lost bits are added back; 0: none.",                   \
      .type = TSR_OPT_INT,                                                                         \
      .flags = fl,                                                                                 \
      .offset = TSR_FIELD(S, f.compensate, int64_t),                                               \
      .max = { .i = 1024 } },                                                                      \
        { .name = "select",                                                                        \
          .help = "How compensated channels are selected.",                                        \
          .type = TSR_OPT_ENUM,                                                                    \
          .flags = fl,                                                                             \
          .offset = TSR_FIELD(S, f.select, int64_t),                                               \
          .def = { .i = TSR_COMPENSATE_SELECT_DYNAMIC },                                           \
          .choices = tsr_compensate_select_choices,                                                \
          .n_choices = 5 },                                                                        \
        { .name = "positions",                                                                     \
          .help = "Which tokens are compensated.",                                                 \
          .type = TSR_OPT_ENUM,                                                                    \
          .flags = fl,                                                                             \
          .offset = TSR_FIELD(S, f.positions, int64_t),                                            \
          .def = { .i = where },                                                                   \
          .choices = tsr_positions_choices,                                                        \
          .n_choices = 2 },                                                                        \
    {                                                                                              \
        .name = "compensate_plan", .help = "A plan file whose compensation is taken instead.",     \
        .type = TSR_OPT_STRING, .unit = "FILE", .flags = fl,                                       \
        .offset = TSR_FIELD(S, f.compensate_plan, const char *), .def = {                          \
            .s = ""                                                                                \
        }                                                                                          \
    }

/* What an engine is created with.  Zeroed before open(). */
struct tsr_pipeline_compensating {
    struct tsr_compensation *from;
    uint32_t (*k)[TSR_MODEL_SITES], (*blocks)[TSR_MODEL_SITES]; /* of a plan */
    struct tsr_engine_compensate use;
};

/* Opens the residuals of m, or, if folder is set, those of the packed model there, which must have m's
 * shapes. *e: the argument for the engine's options, NULL without compensation. plan: where to open k's
 * plan; NULL: k's plan path as given. [setup] */
tsr_status tsr_pipeline_compensating_open(struct tsr_pipeline_compensating          *c,
                                          const struct tsr_pipeline_compensate_keys *k,
                                          const char *plan, const char *folder,
                                          const struct tsr_model *m, uint64_t seed,
                                          const struct tsr_engine_compensate **e,
                                          struct tsr_err                      *err);
void       tsr_pipeline_compensating_close(struct tsr_pipeline_compensating *c);

/* k and thread blocks (0: the device chooses) of every layer and site from a plan's compensation lists; fresh memory. */
tsr_status tsr_pipeline_compensating_plan(const char *path, const struct tsr_model *m,
                                          uint32_t (**k)[TSR_MODEL_SITES],
                                          uint32_t (**blocks)[TSR_MODEL_SITES],
                                          struct tsr_err *err);

/* "compensation": k, selection, positions, bits, host bytes, and the selected channels; nothing if e has
 * none. false: out of memory. */
bool tsr_pipeline_compensating_put(json_t *object, const struct tsr_pipeline_compensate_keys *k,
                                   const struct tsr_pipeline_compensating *c,
                                   const struct tsr_engine                *e);
/* The same of several engines that share the work. */
bool tsr_pipeline_compensating_put_done(json_t                                    *object,
                                        const struct tsr_pipeline_compensate_keys *k,
                                        const struct tsr_pipeline_compensating    *c,
                                        const struct tsr_engine_compensated       *done);

#endif
