/* runtime/emulate.h - emulated devices: `{profile: T4, emulate: cpu}` in a cluster file.
 *
 * The backend really computes a micro-batch, which takes at least as long as the device's profile says for
 * its phase, schemes and shape; device memory has the device's limit. Work that took longer than the
 * profile's time counts as an overrun.
 */
#ifndef TSR_RUNTIME_EMULATE_H
#define TSR_RUNTIME_EMULATE_H

#include "engine/engine.h"
#include "plan/cost/latency.h"
#include "runtime/edge.h"
#include "runtime/frame.h"
#include "runtime/layout.h"
#include "runtime/page.h"

/* A stage's device; mesh.profile NULL: a real one, which is neither paced nor limited. */
struct tsr_runtime_pacing_stage {
    struct tsr_plan_mesh mesh;
};

struct tsr_runtime_pacing {
    struct tsr_plan_latency_job       job;
    const struct tsr_plan_candidates *candidates;
    const uint32_t                   *candidate;   /* [layers]: index into them */
    const uint8_t                    *cpu_experts; /* [layers] 1: the CPU runs the experts */
    const struct tsr_plan_candidate  *head;        /* or NULL: as stored */
    struct tsr_runtime_pacing_stage  *stages;      /* of one replica */
    double                            scale;       /* of all times; 1 */
};

/* How long rank `place` takes for a micro-batch before its tokens are in the engine's slots.  [any] */
tsr_status tsr_runtime_pacing_time(const struct tsr_runtime_pacing      *p,
                                   const struct tsr_runtime_place       *place,
                                   const struct tsr_engine              *e,
                                   const struct tsr_runtime_micro_batch *b, double *ms,
                                   struct tsr_err *err);
/* The same for the head alone, of `rows` rows that came back to it. */
tsr_status tsr_runtime_pacing_head(const struct tsr_runtime_pacing *p,
                                   const struct tsr_runtime_place *place, uint32_t rows, double *ms,
                                   struct tsr_err *err);
/* The same for the codec of an edge with hidden rows: encode: by the rank that sends b, else by the one that has received
 * it.  0 where the device's profile has no speed of the codec.  [any] */
double tsr_runtime_pacing_code(const struct tsr_runtime_pacing      *p,
                               const struct tsr_runtime_place       *place,
                               const struct tsr_runtime_edge        *edge,
                               const struct tsr_runtime_micro_batch *b, bool encode);
/* Waits, beating, until `ms` have passed since start_ns; counts. */
void tsr_runtime_pacing_wait(uint64_t start_ns, double ms, struct tsr_runtime_page_rank *r);
/* The same within the work, before a sum over the ranks of a stage: the ranks reach the sum at the same
 * time as their devices would, however unevenly this machine runs them. Counts nothing. */
void tsr_runtime_pacing_mark(uint64_t start_ns, double ms, struct tsr_runtime_page_rank *r);
/* Bytes of one of the stage's devices; 0: no limit. */
uint64_t tsr_runtime_pacing_limit(const struct tsr_runtime_pacing *p,
                                  const struct tsr_runtime_place  *place);

#endif
