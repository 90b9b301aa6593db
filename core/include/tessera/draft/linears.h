/* tessera/draft/linears.h - several LINEARs at once: those that need nothing of each other, and whole
 * feed-forwards of the experts that a token takes.  Draft: an optional table of a backend,
 * "tessera.backend.linears/1"; it may change until it leaves this folder.
 *
 * A backend implements it so that a device is not idle between small products.  For a backend
 * without the table the engine runs one LINEAR after the other.
 *
 * Example: two products of one input.
 *
 *     static tsr_status both(const struct tsr_backend_linears_v1 *t, void *self,
 *                            const struct tsr_op *gate, const struct tsr_op *up,
 *                            struct tsr_err *err)
 *     {
 *         const struct tsr_op *const ops[] = { gate, up };
 *         return t->linears(self, NULL, ops, 2, err);
 *     }
 */
#ifndef TSR_DRAFT_LINEARS_H
#define TSR_DRAFT_LINEARS_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_LINEARS "tessera.backend.linears/1"

/* The feed-forward of one expert for one token: gate and up are LINEARs of one input, act is an ACT of their outputs, which
 * may write to the output of gate, and down is a LINEAR of the output of act.  All have one row. */
struct tsr_gated_op {
    uint32_t             struct_size, reserved;
    const struct tsr_op *gate, *up, *act, *down;
};

struct tsr_backend_linears_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* Queues n LINEARs on a stream, bit-identical to run() of each.  No output overlaps an input or
     * another output.  TSR_E_UNSUPPORTED: the engine runs them one after the other.  After any
     * status other than TSR_OK the outputs are undefined.  [worker] */
    tsr_status (*linears)(void *self, void *stream, const struct tsr_op *const *op, uint32_t n,
                          struct tsr_err *err);

    /* May be NULL, or absent by struct_size.  Queues n feed-forwards, bit-identical to run() of the four
     * operations of each in their order.  No output of one overlaps anything of another.
     * TSR_E_UNSUPPORTED: nothing was done, and the engine runs them by linears() and run().  [worker] */
    tsr_status (*gated)(void *self, void *stream, const struct tsr_gated_op *g, uint32_t n,
                        struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
