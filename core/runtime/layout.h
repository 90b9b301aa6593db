/* runtime/layout.h - assignment of work to ranks, which are numbered by replica, stage, then tensor-parallel
 * rank.
 *
 *   plan file --tsr_runtime_layout_plan--> struct tsr_runtime_layout
 *
 * Rank 0 belongs to the process that coordinates: it tokenizes text and samples. Within a stage, its rank
 * 0 holds the embedding (first stage) and the head (last stage, or the first one: then rank 0 of the last
 * stage returns the hidden rows of the requested tokens to it, and no logits travel).
 */
#ifndef TSR_RUNTIME_LAYOUT_H
#define TSR_RUNTIME_LAYOUT_H

#include "comm/coder.h"
#include "model/model.h"
#include "plan/file/plan_file.h"

#define TSR_MAX_RANKS 1024u
/* The value in plan files before November 2026 for "no codec". It means "plain": F32, exact. */
#define TSR_WIRE_16 "f16"

struct tsr_runtime_layout_stage {
    uint64_t first, end;    /* layers */
    uint32_t ranks;         /* that share each of them */
    bool     whole_experts; /* as in struct tsr_engine_tp */
    bool     cpu_experts;   /* the default backend runs the experts of some of these layers */
    /* codec to the next stage, of the last one to the head if that is on the first; owned; NULL: "plain",
     * exact */
    char *send[TSR_PLAN_PHASES];
    char *collective[TSR_PLAN_PHASES]; /* codec inside; as above */
    char *algorithm[TSR_PLAN_PHASES];  /* inside; NULL: all-gather, or auto with codec auto */
    /* calibration of the codec inside, tsr_comm_way.states; borrowed; NULL: none */
    const struct tsr_comm_state *states[TSR_PLAN_PHASES];
    uint64_t                     n_states[TSR_PLAN_PHASES];
    char *send_over, *collective_over; /* transport; NULL: that of the group */
};

struct tsr_runtime_layout {
    uint32_t                         replicas, n_stages;
    bool                             head_first; /* the head is on the first stage */
    struct tsr_runtime_layout_stage *stages;     /* of one replica; owned */
    uint8_t *cpu_experts; /* [layers] 1: the default backend runs their experts; owned */
    /* requests resident at once, and how many of them go together */
    uint32_t slots, prefill_mb, decode_mb;
    uint64_t chunk;   /* most tokens of a prompt at once; 0: all */
    uint64_t forward; /* most tokens of an engine's forward; 0: its own choice */
    /* [ranks] the backend of each, "cuda:device=1"; owned; NULL, or a NULL entry: the job's backend */
    char **backends;
};

/* The position of a rank: its indices, layers and ends. */
struct tsr_runtime_place {
    uint32_t rank, replica, stage, tp;
    uint64_t first, end;
    bool     embed, head;
    bool     last; /* rank 0 of the last stage: sends on the requested rows */
    bool     back; /* has the head, and is not last: rows come back to it */
};

/* From a plan; `requests`: at most that many slots (0: the plan's number). A plan without places, or with
 * another number of layers, is TSR_E_INPUT. */
tsr_status tsr_runtime_layout_plan(struct tsr_runtime_layout *l, const struct tsr_plan_file *p,
                                   const struct tsr_model_hparams *hp, uint64_t requests,
                                   struct tsr_err *err);
void       tsr_runtime_layout_free(struct tsr_runtime_layout *l); /* zeroed or filled */

/* Whether codec or algorithm inside of a stage is left open: `auto`. */
bool tsr_runtime_layout_open(const struct tsr_runtime_layout *l, uint32_t stage, int phase);
/* Fixes it. */
tsr_status tsr_runtime_layout_fix(struct tsr_runtime_layout *l, uint32_t stage, int phase,
                                  const char *codec, const char *algorithm, struct tsr_err *err);

/* The backend of a rank; NULL: the job's. */
const char *tsr_runtime_layout_backend(const struct tsr_runtime_layout *l, uint32_t rank);

uint32_t                 tsr_runtime_layout_ranks(const struct tsr_runtime_layout *l);
struct tsr_runtime_place tsr_runtime_layout_place(const struct tsr_runtime_layout *l,
                                                  uint32_t                         rank);
uint32_t tsr_runtime_layout_rank(const struct tsr_runtime_layout *l, uint32_t replica,
                                 uint32_t stage, uint32_t tp);
/* Decode micro-batches of all replicas, and slots that each engine of a replica needs. */
uint32_t tsr_runtime_layout_slot_sets(const struct tsr_runtime_layout *l);
uint32_t tsr_runtime_layout_engine_slots(const struct tsr_runtime_layout *l);

#endif
