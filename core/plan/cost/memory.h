/* plan/cost/memory.h - memory of a stage in bytes.
 *
 *   exact   real tensor shapes, the plugins' own packed sizes, the layout that the device's backend
 *           uses, KV rows in the engine's layout, activations and kernels' scratch
 *   paper   LLM-PQ's: a layer's matrices at 4*bits/32 bytes each weight, KV and temporary memory of
 *           its code, whole MiB for each layer, 0.95 of the memory less 1930 MiB
 *
 * A mesh of tp devices counts as one: bytes are the sum over its ranks. Its ranks share layers evenly, but
 * embedding, head and logits belong to rank 0 alone (exact accounting). The other ranks cannot offer the
 * mesh the amount by which rank 0 exceeds them; it is "uneven" below.
 */
#ifndef TSR_PLAN_COST_MEMORY_H
#define TSR_PLAN_COST_MEMORY_H

#include "plan/cost/memory_job.h"
#include "plan/cost/workload.h"

/* Opens the backends that report sizes. Without it, a job assumes the packed sizes on every device.
 * [setup] */
tsr_status tsr_plan_memory_open(struct tsr_plan_memory_job *j, struct tsr_err *err);
void       tsr_plan_memory_close(struct tsr_plan_memory_job *j);

/* Weights of one layer of a class, with scales, norms and biases; and its KV for the whole batch.  Without those of
 * experts that the CPU runs (m->cpu_experts).
 * TSR_E_UNSUPPORTED where the candidate cannot pack it.  [setup] */
tsr_status tsr_plan_memory_layer(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 uint64_t cls, const struct tsr_plan_candidate *c,
                                 uint64_t *weights, uint64_t *kv, struct tsr_err *err);
/* The experts of a layer in the memory of the mesh's CPU, of all its ranks; 0 where the layer has none.  exact alone. */
tsr_status tsr_plan_memory_experts(const struct tsr_plan_memory_job *j,
                                   const struct tsr_plan_mesh *m, uint64_t cls,
                                   const struct tsr_plan_candidate *c, uint64_t *bytes,
                                   struct tsr_err *err);
/* memory_draft.c. What the mesh has of its CPU's memory; 0 without a CPU. */
uint64_t tsr_plan_memory_host(const struct tsr_plan_mesh *m);
/* The same beside j's draft models that are there: the devices of the node have equal parts of what these leave. As any node may have the
 * first stage, each keeps that room. *lack: bytes by which a draft model does not fit, so that the mesh cannot be the first
 * stage.  [setup] */
tsr_status tsr_plan_memory_host_left(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh *m, uint64_t *bytes, uint64_t *lack,
                                     struct tsr_err *err);
/* Memory of the embedding, a draft model included (cost/draft.h), and of the head, in addition to layers. A tied head on another stage counts again
 * (both hold the matrix); *shared is the saving if one stage has both. paper: embedding and head on stage
 * 1, so *head is 0 (ruling 27). [setup] */
tsr_status tsr_plan_memory_ends(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                uint64_t *embed, uint64_t *head, uint64_t *shared,
                                struct tsr_err *err);

/* Activations, scratch of the kernels, logits and the other run-time buffers of one stage, for prefill
 * micro-batches of `prefill_mb` and decode ones of `decode_mb` requests: the maximum of the phases. first:
 * first stage of the pipeline; last: it has the head. c: the candidates that may run there; the worst
 * counts. *lead: what rank 0 takes in excess of another rank; may be NULL. [setup] */
tsr_status tsr_plan_memory_workspace(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh       *m,
                                     const struct tsr_plan_candidates *c, uint64_t prefill_mb,
                                     uint64_t decode_mb, bool first, bool last, uint64_t *bytes,
                                     uint64_t *lead, struct tsr_err *err);
/* Bytes that a plan may use on the mesh, if it uses its devices evenly. */
uint64_t tsr_plan_memory_capacity(const struct tsr_plan_mesh *m, enum tsr_accounting a);

/* What the other devices of a mesh cannot give when rank 0 has `ends` and `lead` alone; false on overflow. */
bool tsr_plan_memory_uneven(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                            uint64_t ends, uint64_t lead, uint64_t *bytes);
static inline uint64_t tsr_capacity_left(uint64_t capacity, uint64_t uneven)
{
    return capacity > uneven ? capacity - uneven : 0;
}

/* A whole stage, as the sum of the above: layers first..first+n-1 with candidate bits[l] each, and experts on the CPU
 * where cpu_experts[l] (NULL: nowhere), and caches of j->kv_of. It fits if total <= capacity, which is the mesh's capacity less `uneven`, and
 * host <= host_capacity, of the CPU's memory, and draft_lack is 0: the bytes by which a draft model does not fit there. */
struct tsr_plan_stage_memory {
    uint64_t weights, kv, ends, draft, workspace, total, capacity, uneven;
    uint64_t host, host_capacity, draft_lack;
};
tsr_status tsr_plan_memory_stage(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 const struct tsr_plan_candidates *c, const uint32_t *bits,
                                 const uint8_t *cpu_experts, uint64_t first, uint64_t n,
                                 uint64_t prefill_mb, uint64_t decode_mb,
                                 struct tsr_plan_stage_memory *out, struct tsr_err *err);

/* Bytes of a layer's cache on one of tp ranks.  False: more than can be counted.  [any] */
bool tsr_plan_memory_cache(const struct tsr_plan_memory_job *j, uint64_t cls, uint32_t tp,
                           uint64_t *bytes);

/* memory_draft.c. What the largest of j's draft models takes on rank 0 of a mesh that is the first stage: the stage that it would be
 * alone. All 0 where there is none, all are known to be in other memory, or the accounting is that of the paper.  [setup] */
tsr_status tsr_plan_memory_draft(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 struct tsr_plan_stage_memory *most, struct tsr_err *err);
/* The same where the first stage is on another device of the node, whose memory is not where the draft is: on any of the
 * mesh's devices, which are used evenly, so times their number.  [setup] */
tsr_status tsr_plan_memory_draft_beside(const struct tsr_plan_memory_job *j,
                                        const struct tsr_plan_mesh *m, uint64_t *bytes,
                                        struct tsr_err *err);
/* The same in the memory of the node's CPU, where the first stage is on another device; 0 where the cluster file has no such CPU.
 * [setup] */
tsr_status tsr_plan_memory_draft_host(const struct tsr_plan_memory_job *j,
                                      const struct tsr_plan_mesh       *m,
                                      struct tsr_plan_stage_memory *most, struct tsr_err *err);

#endif
