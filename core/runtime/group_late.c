/* Ranks that do not return: a thread cannot be killed, so it takes this process with it. */
#include "base/event.h"
#include "runtime/group_internal.h"

/* A rank that was ordered to end at ended_ns and has since made no progress, or been idle, for too long. */
bool tsr_runtime_group_late(const struct tsr_runtime_group *c, uint32_t rank, uint64_t ended_ns)
{
    const struct tsr_runtime_page_rank *r = &c->plan.page->rank[rank];
    uint64_t                            now = tsr_runtime_now_ns(), since = ended_ns;
    uint64_t                            ns = atomic_load(&r->progress.ns);
    if (atomic_load(&r->progress.op) != TSR_RUNTIME_RANK_IDLE && ns > since)
        since = ns;
    return now > since && now - since > 2 * tsr_group_stall_ns(c);
}

_Noreturn void tsr_runtime_group_give_up(const struct tsr_runtime_group *c, uint32_t rank)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              text[200];
    tsr_runtime_progress_describe(&c->plan.page->rank[rank].progress, tsr_runtime_now_ns(), text,
                                  sizeof text);
    if (tsr_runtime_page_failure(c->plan.page, &e.err) == TSR_OK)
        tsr_event_end(TSR_E_DEVICE,
                      "rank %u: %s; it was asked to end, and its thread does not return: this "
                      "process ends",
                      rank, text);
    tsr_event_end(TSR_E_DEVICE, "%s; the thread of rank %u does not return: this process ends",
                  e.text, rank);
}
