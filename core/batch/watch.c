#include "batch/watch.h"

#include <stddef.h>

static struct tsr_batch_watch *page; /* set once, before there are threads */

void tsr_batch_watch_set(struct tsr_batch_watch *w)
{
    page = w;
}

struct tsr_batch_watch *tsr_batch_watch_get(void)
{
    return page;
}

void tsr_batch_watch_ranks(bool on)
{
    if (page)
        atomic_store(&page->ranks, on);
}

void tsr_batch_watch_beat(void)
{
    if (page)
        atomic_fetch_add_explicit(&page->beats, 1, memory_order_relaxed);
}
