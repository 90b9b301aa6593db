/* states.h - the calibration of a coder's instances, once all their ranges are observed: as a plan's files have it. */
#ifndef TSR_TEST_STATES_H
#define TSR_TEST_STATES_H

#include "comm/coder.h"

#include <stdlib.h>

/* How many there are; states_free() frees them. */
static inline uint64_t states_take(struct tsr_comm_coder *c, struct tsr_comm_state *states)
{
    const struct tsr_codec_v1 *t = c->iface;
    const uint64_t             n = tsr_comm_instances(c->algorithm, c->ranks);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(t->freeze(c->self[i], NULL), TSR_OK);
        states[i].bytes = t->state_bytes(c->self[i]);
        void *state = malloc(states[i].bytes);
        assert_non_null(state);
        assert_int_equal(t->save(c->self[i], state, NULL), TSR_OK);
        states[i].data = state;
    }
    return n;
}

static inline void states_free(struct tsr_comm_state *states, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        free((void *)(uintptr_t)states[i].data);
}

#endif
