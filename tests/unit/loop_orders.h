/* loop_orders.h - orders of the items of a loop, for `host_for_instead` of cpu_fixture.h, whose own is from the last to
 * the first. */
#ifndef TSR_TEST_LOOP_ORDERS_H
#define TSR_TEST_LOOP_ORDERS_H

#include "cpu_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

static tsr_status one_item(uint64_t i, uint64_t n, uint64_t grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    return body(arg, i * grain, (i + 1) * grain < n ? (i + 1) * grain : n);
}

static tsr_status ascending(uint64_t n, uint64_t                                  grain,
                            tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < (n + grain - 1) / grain && st == TSR_OK; i++)
        st = one_item(i, n, grain, body, arg);
    return st;
}

static tsr_status shuffled(uint64_t n, uint64_t                                  grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    uint64_t   items = (n + grain - 1) / grain, *at = malloc((items + 1) * sizeof *at);
    tsr_status st = TSR_OK;
    assert_non_null(at);
    for (uint64_t i = 0; i < items; i++) { /* i goes to a place among those in front of it */
        uint64_t j = rnd() % (i + 1);
        at[i] = at[j];
        at[j] = i;
    }
    for (uint64_t i = 0; i < items && st == TSR_OK; i++)
        st = one_item(at[i], n, grain, body, arg);
    free(at);
    return st;
}

struct group {
    uint64_t n, grain;
    tsr_status (*body)(void *, uint64_t, uint64_t);
    void            *arg;
    _Atomic uint64_t next;
};

static void *group_works(void *arg)
{
    struct group *c = arg;
    for (uint64_t i; (i = atomic_fetch_add(&c->next, 1)) < (c->n + c->grain - 1) / c->grain;)
        if (one_item(i, c->n, c->grain, c->body, c->arg) != TSR_OK)
            abort();
    return NULL;
}

/* Three threads that take the next item each: two of them come to pieces at about the same time. */
static tsr_status threaded(uint64_t n, uint64_t                                  grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    struct group c = { .n = n, .grain = grain, .body = body, .arg = arg };
    pthread_t    id[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&id[i], NULL, group_works, &c), 0);
    (void)group_works(&c);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
    return TSR_OK;
}

#define ORDERS 4
static tsr_status (*const loop_orders[ORDERS])(uint64_t, uint64_t,
                                               tsr_status (*)(void *, uint64_t, uint64_t),
                                               void *) = { NULL, ascending, shuffled, threaded };

#endif
