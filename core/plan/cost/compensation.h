/* plan/cost/compensation.h - what compensated channels take: bytes of residuals, work memory, and time of a decode step
 * (docs/formats/compensation.md, docs/decisions/settings.md).
 *
 * Where residuals are:
 *
 *   on a device that is the CPU     in its memory; read after the linears, at its bandwidth
 *   of experts that the CPU runs    in the CPU's memory; read after them, at its bandwidth
 *   of other devices                in the host's memory; read at the profile's `host` while the linears run
 */
#ifndef TSR_PLAN_COST_COMPENSATION_H
#define TSR_PLAN_COST_COMPENSATION_H

#include "plan/cost/candidate.h"
#include "plan/cost/memory_job.h"

#define TSR_PLAN_RESIDUAL_BITS 4u /* of residuals: the default of the step `compensate` */

/* Of some layers of a stage: sums, and maxima where it says so.  Zeroed before the first layer. */
struct tsr_plan_compensation {
    uint64_t k;              /* most channels of 1,024 */
    uint64_t bytes, on_cpu;  /* of residuals; of them, of experts that the CPU runs */
    uint64_t read, read_cpu; /* bytes for a token: by the device, by the CPU */
    uint64_t listed, widest; /* most channels that are selected of an input; the widest input */
    uint64_t scales;         /* bytes of the device's own copy of scales */
};

/* Whether layers under a candidate have residuals: what nothing packs has lost nothing.  [any] */
bool tsr_plan_compensation_there(const struct tsr_plan_shape     *s,
                                 const struct tsr_plan_candidate *c);
/* Adds one layer of a class with k[i] channels of 1,024 of linear i.  A linear has residuals if it is packed, in a packed
 * model; else all have.  bits: of the residuals.  Each rank has a run of
 * the outputs of every linear, in whole lines of 64 bytes, also of those that the mesh cuts by inputs.  m->cpu_experts: its experts are the CPU's.  [any] */
tsr_status tsr_plan_compensation_layer(struct tsr_plan_compensation *c,
                                       const struct tsr_plan_shape  *s,
                                       const struct tsr_plan_mesh *m, uint64_t cls,
                                       const uint32_t k[TSR_PLAN_LINEARS], uint32_t bits,
                                       struct tsr_err *err);
/* Bytes of work memory on the mesh's devices, 0 without compensated channels, for prefill micro-batches of so many
 * requests.  [any] */
tsr_status tsr_plan_compensation_work(const struct tsr_plan_compensation *c,
                                      const struct tsr_plan_memory_job   *j,
                                      const struct tsr_plan_mesh *m, uint64_t prefill_mb,
                                      uint64_t *bytes, struct tsr_err *err);
/* Bits of a model's residuals; *assumed: it has none yet, and these are the default of the step `compensate`.  [setup] */
tsr_status tsr_plan_compensation_bits(const struct tsr_plan_shape *s, const char *model,
                                      uint32_t *bits, bool *assumed, struct tsr_err *err);
/* Whether the residuals of the mesh's own linears are in the host's memory. */
bool tsr_plan_compensation_host(const struct tsr_plan_mesh *m);
/* Milliseconds of a decode step of one layer that takes `base` ms without compensation, for `rows` requests; NAN where the
 * profile has no `host`.  [any] */
double tsr_plan_compensation_ms(const struct tsr_plan_compensation *c,
                                const struct tsr_plan_mesh *m, double base, double rows);

#endif
