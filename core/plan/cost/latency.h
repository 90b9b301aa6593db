/* plan/cost/latency.h - milliseconds of layers, ends and links.
 *
 * fit    non-negative least squares over a profile's points, by kernel and phase, on the papers'
 *        features: prefill 1, v, s, vs, vs^2; decode 1, v, v(t+s), t+s; each scaled by the size
 *        that it models (weights, widths, cache), so that points of one shape carry to another
 *        shape; such results are marked
 * table  the points themselves, interpolated between neighbours
 *
 * Where points are few, the datasheet is a prior (docs/formats/device.md); where there are none, the model
 * is a roofline. tp > 1: work of layers over tp, plus two collectives.
 */
#ifndef TSR_PLAN_COST_LATENCY_H
#define TSR_PLAN_COST_LATENCY_H

#include "plan/cost/memory.h"

enum tsr_latency_mode { TSR_PLAN_LATENCY_FIT, TSR_PLAN_LATENCY_TABLE };

struct tsr_plan_time {
    double ms; /* NaN: the device does not run it */
    double
        cpu_ms; /* of it, experts on the CPU next to the device, and rows on their way there and back */
    double         most_ms; /* of a prompt: its longest chunk */
    enum tsr_basis basis;
    bool           extrapolated; /* outside the range or the shapes of its points */
};

struct tsr_plan_latency_job {
    const struct tsr_plan_shape *shape;
    enum tsr_latency_mode        mode;
    uint32_t                     kv_bits;
    uint64_t forward; /* most tokens of the engine's forwards; 0: it takes a micro-batch at once */
    const struct tsr_plan_candidate *embed; /* storage of the embedding; NULL: as stored */
    const struct tsr_plan_wire
        *tp_wire[2]; /* by phase, of the collectives inside a mesh; NULL: F32 */
};

/* One layer. Prefill: v prompts, s tokens of each after t past ones; decode: v requests, s = 1, t past
 * positions (a mean, so not an integer). A candidate that a device cannot run is not an error: out->ms is
 * NaN. With m->cpu_experts the time of the layer without its experts, of these on the mesh's part of the CPU, and of
 * the rows that travel between the two. [any] */
tsr_status tsr_plan_latency_layer(const struct tsr_plan_latency_job *j,
                                  const struct tsr_plan_mesh *m, uint64_t cls,
                                  const struct tsr_plan_candidate *c, enum tsr_phase phase,
                                  double v, double s, double t, struct tsr_plan_time *out,
                                  struct tsr_err *err);
/* The whole prompt of v requests in chunks: the sum over the workload's chunks. */
tsr_status tsr_plan_latency_prompt(const struct tsr_plan_latency_job *j,
                                   const struct tsr_plan_mesh *m, uint64_t cls,
                                   const struct tsr_plan_candidate *c,
                                   const struct tsr_plan_workload *w, uint64_t v,
                                   struct tsr_plan_time *out, struct tsr_err *err);
/* Embedding of v * s tokens; head for v rows of logits (a prompt needs its last row only).  head:
 * how it is kept, NULL: as stored.  Once per owner, never per layer.  One rank of a mesh has each of them, whatever its
 * width.  [any] */
tsr_status tsr_plan_latency_embed(const struct tsr_plan_latency_job *j,
                                  const struct tsr_plan_mesh *m, double tokens,
                                  struct tsr_plan_time *out, struct tsr_err *err);
tsr_status tsr_plan_latency_head(const struct tsr_plan_latency_job *j,
                                 const struct tsr_plan_mesh        *m,
                                 const struct tsr_plan_candidate *head, double rows,
                                 struct tsr_plan_time *out, struct tsr_err *err);

/* The time of a message between meshes. */
struct tsr_plan_send {
    double ms;       /* until it is decoded: its way when nothing is ahead of it */
    double every_ms; /* between two messages of a row of them: they overlap; at most ms */
};
/* What a message takes on a mesh's device by its profile: 0 where that has no entry for the codec, or codec is NULL. */
struct tsr_plan_coding {
    double encode_ms, decode_ms;
};
void tsr_plan_latency_coding(const struct tsr_plan_mesh *m, const char *codec, uint64_t rows,
                             uint64_t cols, struct tsr_plan_coding *out);

/* One micro-batch of `rows` tokens from a mesh to the next: encoded, sent and decoded, one after the other. Of the next
 * micro-batches one is encoded and one sent meanwhile, as the runtime's threads do. A wider mesh gets the rows once for each
 * of its devices: one sender encodes and sends them in the same way, and they are decoded concurrently.
 * rows x cols F32 numbers.  [any] */
tsr_status tsr_plan_latency_link(const struct tsr_plan_cluster *c, const struct tsr_plan_mesh *from,
                                 const struct tsr_plan_mesh *to, enum tsr_phase phase,
                                 const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                                 struct tsr_plan_send *out, struct tsr_err *err);
/* Rows of the wanted tokens from rank 0 of the last stage to rank 0 of the first, which has the head.  [any] */
tsr_status tsr_plan_latency_back(const struct tsr_plan_cluster *c, const struct tsr_plan_mesh *last,
                                 const struct tsr_plan_mesh *first, enum tsr_phase phase,
                                 const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                                 struct tsr_plan_send *out, struct tsr_err *err);
/* One collective of tp ranks over rows x cols sums: the faster of all-gather and two-step, by the
 * steps that the runtime takes (comm/predict.h), with the codec's speed on the device. */
tsr_status tsr_plan_latency_collective(const struct tsr_plan_mesh *m, enum tsr_phase phase,
                                       const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                                       double *ms, bool *two_step, struct tsr_err *err);

#endif
