/* pipeline/compensating.h - options of everything that runs a model with compensation. */
#ifndef TSR_PIPELINE_COMPENSATING_H
#define TSR_PIPELINE_COMPENSATING_H

#include "compensate/compensation.h"
#include "engine/engine.h"

#include <jansson.h>

struct tsr_compensate_keys {
    int64_t     compensate, select, positions;
    const char *compensate_plan;
    int32_t     recall;
};
enum tsr_positions_of { TSR_POSITIONS_DECODE, TSR_POSITIONS_ALL };
extern const struct tsr_choice tsr_positions_choices[2];

/* positions: what is compensated when nothing is said. */
#define TSR_COMPENSATE_OPTIONS(S, f, where)                                                        \
    TSR_COMPENSATE_WAYS(S, f, where),                                                              \
    {                                                                                              \
        .name = "recall", .help = "Report how many of the largest channels the selections have.",  \
        .type = TSR_OPT_BOOL, .offset = TSR_FIELD(S, f.recall, int32_t)                            \
    }
/* The same but recall. */
#define TSR_COMPENSATE_WAYS(S, f, where)                                                           \
    { .name = "compensate",                                                                        \
      .help = "Input channels of 1024 whose lost bits are added back; 0: none.",                   \
      .type = TSR_OPT_INT,                                                                         \
      .offset = TSR_FIELD(S, f.compensate, int64_t),                                               \
      .max = { .i = 1024 } },                                                                      \
        { .name = "select",                                                                        \
          .help = "How compensated channels are selected.",                                        \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, f.select, int64_t),                                               \
          .def = { .i = TSR_SELECT_DYNAMIC },                                                      \
          .choices = tsr_select_choices,                                                           \
          .n_choices = 5 },                                                                        \
        { .name = "positions",                                                                     \
          .help = "Which tokens are compensated.",                                                 \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, f.positions, int64_t),                                            \
          .def = { .i = where },                                                                   \
          .choices = tsr_positions_choices,                                                        \
          .n_choices = 2 },                                                                        \
    {                                                                                              \
        .name = "compensate_plan", .help = "A plan file whose compensation is taken instead.",     \
        .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, f.compensate_plan, const char *), .def = {  \
            .s = ""                                                                                \
        }                                                                                          \
    }

/* What an engine is created with.  Zeroed before open(). */
struct tsr_compensating {
    struct tsr_compensation *from;
    uint32_t (*k)[TSR_SITES]; /* of a plan */
    struct tsr_engine_compensate use;
};

/* Opens the residuals of m, or, where folder is given, those of the packed model there that has m's
 * shapes; *e: what the engine's options take, NULL where nothing is asked for.  plan: where k's plan is to be
 * opened, NULL: as it is given.  [setup] */
tsr_status tsr_compensating_open(struct tsr_compensating *c, const struct tsr_compensate_keys *k,
                                 const char *plan, const char *folder, const struct tsr_model *m,
                                 uint64_t seed, const struct tsr_engine_compensate **e,
                                 struct tsr_err *err);
void       tsr_compensating_close(struct tsr_compensating *c);

/* k of every layer and site from a plan's compensation lists. */
tsr_status tsr_compensating_plan(const char *path, const struct tsr_model  *m,
                                 uint32_t (**k)[TSR_SITES], struct tsr_err *err);

/* "compensation": k, selection, positions, bits, host bytes, and what was selected; nothing where e has
 * none.  false: out of memory. */
bool tsr_compensating_put(json_t *object, const struct tsr_compensate_keys *k,
                          const struct tsr_compensating *c, const struct tsr_engine *e);
/* The same of several engines that share the work. */
bool tsr_compensating_put_done(json_t *object, const struct tsr_compensate_keys *k,
                               const struct tsr_compensating       *c,
                               const struct tsr_engine_compensated *done);

#endif
