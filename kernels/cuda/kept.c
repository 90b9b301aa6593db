/* kept.c - quantized activations that stay in the scratch for the next LINEAR.
 *
 * Linears that share an input (q, k, v; gate, up; experts of one token) need it quantized once. What is in the
 * scratch may be taken again only if it is certain that neither the input nor the scratch was written since:
 *
 *   another operation's scratch            tsr_cuda_work() forgets
 *   an operation on the default stream     its output is compared with the input's bytes
 *   an operation that fails, or on another stream; an upload; a freed buffer; messages of codecs; a wait;
 *   work of another stream that is ordered before; a list that fails; linear algebra
 *                                          all forget, whatever they wrote
 *
 * A graph that is replayed stands for the launches of a list, which were compared when they were queued. */
#include "backend.h"

/* Launches that leave the same bytes. */
static int same(const struct k_quantize *a, const struct k_quantize *b)
{
    return a->x == b->x && a->ldx == b->ldx && a->q == b->q && a->ldq == b->ldq && a->sa == b->sa &&
           a->found == b->found && a->tokens == b->tokens && a->cols == b->cols &&
           a->segment == b->segment && a->blocks == b->blocks && a->per_segment == b->per_segment &&
           a->threshold == b->threshold;
}

int tsr_cuda_kept_has(const struct tsr_cuda *c, enum tsr_cuda_kernel kernel,
                      const struct k_quantize *q)
{
    const struct tsr_cuda_kept *k = &c->kept;
    return k->from < k->end && k->kernel == kernel && same(&k->q, q);
}

void tsr_cuda_kept_keep(struct tsr_cuda *c, enum tsr_cuda_kernel kernel, const struct k_quantize *q)
{
    uint64_t last = ((uint64_t)q->tokens - 1) * q->ldx;
    c->kept = (struct tsr_cuda_kept){
        .q = *q, .from = q->x, .end = q->x + 4 * (last + q->cols), .kernel = kernel
    };
}

void tsr_cuda_kept_wrote(struct tsr_cuda *c, uint64_t from, uint64_t end)
{
    if (from < c->kept.end && c->kept.from < end)
        tsr_cuda_kept_forget(c);
}

void tsr_cuda_kept_forget(struct tsr_cuda *c)
{
    c->kept.from = c->kept.end = 0;
}
