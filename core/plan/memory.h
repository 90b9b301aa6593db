/* plan/memory.h - bytes that a stage takes.
 *
 *   exact   real tensor shapes, the plugins' own packed sizes, the layout that the device's backend
 *           keeps them in, KV rows as the engine lays them out, activations and kernels' scratch
 *   paper   LLM-PQ's: a layer's matrices at 4*bits/32 bytes each weight, KV and temporary memory of
 *           its code, whole MiB for each layer, 0.95 of the memory less 1930 MiB
 *
 * A mesh of tp devices counts as one: bytes are of all its ranks together.  Its ranks share layers evenly, but
 * embedding, head and logits are rank 0's alone (exact accounting): what that has more than the others, they
 * cannot give to the mesh, "uneven" below.
 */
#ifndef TSR_PLAN_MEMORY_H
#define TSR_PLAN_MEMORY_H

#include "plan/cluster.h"
#include "plan/workload.h"

/* The stage whose rank 0 has the final norm and the head: the last one, or the first, beside the
 * embedding (LLM-PQ's master). */
enum tsr_head_place { TSR_HEAD_LAST, TSR_HEAD_FIRST };
enum tsr_accounting { TSR_ACCOUNT_EXACT, TSR_ACCOUNT_PAPER };

/* What all functions below are about. */
struct tsr_memory_job {
    struct tsr_registry        *registry; /* backends are asked for sizes; NULL: plain sizes */
    const struct tsr_shape     *shape;
    enum tsr_accounting         accounting;
    uint64_t                    batch;            /* requests resident at once */
    uint64_t                    prompt, generate; /* tokens; their sum is the context */
    uint64_t                    chunk;            /* most tokens of a forward; 0: prompt */
    uint32_t                    kv_bits;          /* 32, 16, 8 */
    double                      time_mult;        /* paper: --time_mult_times; 0: 1 */
    enum tsr_head_place         place;            /* which stage has the head */
    const struct tsr_candidate *head;             /* how the head is kept; NULL: as it is stored */
    struct tsr_size_cache      *cache;            /* of tsr_memory_open() */
};
/* Opens what sizes are asked from.  A job without it takes every device's sizes to be as packed.
 * [setup] */
tsr_status tsr_memory_open(struct tsr_memory_job *j, struct tsr_err *err);
void       tsr_memory_close(struct tsr_memory_job *j);

/* Weights of one layer of a class, with scales, norms and biases; and its KV for the whole batch.
 * TSR_E_UNSUPPORTED where the candidate cannot pack it.  [setup] */
tsr_status tsr_memory_layer(const struct tsr_memory_job *j, const struct tsr_mesh *m, uint64_t cls,
                            const struct tsr_candidate *c, uint64_t *weights, uint64_t *kv,
                            struct tsr_err *err);
/* Beyond its layers: what the stages with the embedding and with the head hold.  A tied head of another
 * stage counts again (both hold the matrix); *shared is what one stage saves that has both.
 * paper: embedding and head on stage 1, so *head is 0 (ruling 27).  [setup] */
tsr_status tsr_memory_ends(const struct tsr_memory_job *j, const struct tsr_mesh *m,
                           uint64_t *embed, uint64_t *head, uint64_t *shared, struct tsr_err *err);

/* Activations, scratch of the kernels, logits, and what runs beside them on one stage, for prefill
 * micro-batches of `prefill_mb` and decode ones of `decode_mb` requests: the larger of the phases.
 * first: of the pipeline; last: it has the head.  c: the candidates that may run there; the worst counts.  *lead: what rank 0
 * takes of them more than another rank does; may be NULL.  [setup] */
tsr_status tsr_memory_workspace(const struct tsr_memory_job *j, const struct tsr_mesh *m,
                                const struct tsr_candidates *c, uint64_t prefill_mb,
                                uint64_t decode_mb, bool first, bool last, uint64_t *bytes,
                                uint64_t *lead, struct tsr_err *err);
/* Bytes that a plan may use on the mesh, if it uses its devices evenly. */
uint64_t tsr_memory_capacity(const struct tsr_mesh *m, enum tsr_accounting a);

/* What the other devices of a mesh cannot give when rank 0 has `ends` and `lead` alone; false on overflow. */
bool tsr_memory_uneven(const struct tsr_memory_job *j, const struct tsr_mesh *m, uint64_t ends,
                       uint64_t lead, uint64_t *bytes);
static inline uint64_t tsr_capacity_left(uint64_t capacity, uint64_t uneven)
{
    return capacity > uneven ? capacity - uneven : 0;
}

/* A whole stage, as the sum of the above: layers first..first+n-1 with candidate bits[l] each.  It fits
 * where total <= capacity, which is the mesh's less what is uneven. */
struct tsr_stage_memory {
    uint64_t weights, kv, ends, workspace, total, capacity, uneven;
};
tsr_status tsr_memory_stage(const struct tsr_memory_job *j, const struct tsr_mesh *m,
                            const struct tsr_candidates *c, const uint32_t *bits, uint64_t first,
                            uint64_t n, uint64_t prefill_mb, uint64_t decode_mb,
                            struct tsr_stage_memory *out, struct tsr_err *err);

#endif
