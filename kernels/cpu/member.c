/* member.c - one of the products that share a loop over the threads. */
#include "member.h"

int tsr_cpu_member_take(const struct tsr_op *op, struct tsr_cpu_product *m)
{
    return tsr_cpu_product_view(op, m, NULL) == TSR_OK && m->job.tokens == 1 &&
           m->k != &tsr_cpu_kernel_floats && m->k != &tsr_cpu_kernel_rounded;
}

uint8_t *tsr_cpu_member_prepare(struct tsr_cpu_product *m, const struct tsr_cpu_product **before,
                                uint8_t *room)
{
    const struct tsr_cpu_product *b = *before;
    if (b && tsr_cpu_product_alike(b, m)) {
        m->job.inputs = b->job.inputs;
        return room;
    }
    *before = m;
    (void)tsr_cpu_product_prepare(m, room,
                                  NULL); /* one token: no loop over threads, which may fail */
    return room + tsr_cpu_product_room(m);
}

void tsr_cpu_member_run(const struct tsr_cpu_product *m, uint64_t begin, uint64_t end)
{
    (void)tsr_cpu_product_run(m, 1, begin, end);
}
