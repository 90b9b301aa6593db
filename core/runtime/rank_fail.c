/* A rank that fails or is ended: nobody waits for it any more. */
#include "runtime/rank_internal.h"

/* Nobody waits for this rank any more. */
static void give_up(struct tsr_runtime_rank *r)
{
    tsr_runtime_queue_close(r->work);
    tsr_runtime_queue_close(&r->spare);
    tsr_runtime_queue_close(&r->next.queue);
    tsr_runtime_queue_close(&r->fan.queue);
    tsr_runtime_queue_close(&r->answer.queue);
    tsr_runtime_edge_abort(&r->in);
    tsr_runtime_edge_abort(&r->back.end);
    for (uint32_t i = 0; i < TSR_RANK_FANS; i++) {
        tsr_runtime_edge_abort(&r->answer.end[i]);
        tsr_runtime_edge_abort(&r->next.end[i]);
        tsr_runtime_edge_abort(&r->fan.end[i]);
    }
    if (r->group)
        tsr_comm_group_abort(r->group);
}

/* A rank that was cancelled is not the one that failed. */
void tsr_runtime_rank_failed(struct tsr_runtime_rank *r, tsr_status st, const struct tsr_err *err)
{
    if (st != TSR_E_CANCELLED || (tsr_plugin_cancelled() && !r->plan->peers))
        tsr_runtime_page_fail_by(r->plan->page, r->place.rank, st, err);
    give_up(r);
}

void tsr_runtime_rank_abort(struct tsr_runtime_rank_handle *h)
{
    (void)pthread_mutex_lock(&h->lock);
    if (h->rank)
        give_up(h->rank);
    (void)pthread_mutex_unlock(&h->lock);
}
