/* Transports: the kind, what a group does for the rules of every kind, and the table of rules. */
#include "conformance/transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

static const struct tsr_transport_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

/* Instances of make() with their worlds, which go with them. */
static struct {
    void                        *self;
    struct tsr_conformance_group g;
} lone[16];

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    uint64_t i = 0;
    while (i < sizeof lone / sizeof lone[0] && lone[i].self)
        i++;
    if (i == sizeof lone / sizeof lone[0])
        tsr_conformance_rule_skip(c, "more than %llu instances at once", (unsigned long long)i);
    tsr_conformance_group_make(&lone[i].g, c, 2);
    tsr_status st = tsr_conformance_group_enter(&lone[i].g, 0, self, err);
    if (st == TSR_OK)
        lone[i].self = *self;
    else
        tsr_conformance_group_free(&lone[i].g);
    return st;
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
    for (uint64_t i = 0; self && i < sizeof lone / sizeof lone[0]; i++)
        if (lone[i].self == self) {
            lone[i].self = NULL;
            tsr_conformance_group_free(&lone[i].g);
        }
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

/* The clock of the test host is processor time, and a rank that waits well uses none. */
static void *burn(void *arg)
{
    atomic_bool *over = arg;
    while (!atomic_load(over)) {
    }
    return NULL;
}

/* Waits for a second and a half for a message that never comes. */
static tsr_status wait_in_vain(struct tsr_conformance_case        *c,
                               const struct tsr_conformance_group *g, void *self, void *request,
                               struct tsr_err *err)
{
    atomic_bool over;
    pthread_t   id;
    atomic_init(&over, false);
    if (pthread_create(&id, NULL, burn, &over) != 0)
        tsr_conformance_rule_skip(c, "no thread could be started");
    tsr_conformance_test_host_start(c->host);
    tsr_status st = g->t->wait(self, request, UINT64_C(1500000), err);
    atomic_store(&over, true);
    (void)pthread_join(id, NULL);
    return st;
}

/* Two ranks on one thread: the first waits for a message that the second has already sent, or (long) for
 * one that never comes. */
static tsr_status traffic(struct tsr_conformance_case *c, const struct tsr_conformance_group *g,
                          void *const *self, bool long_run, struct tsr_err *err)
{
    const struct tsr_transport_v1 *t = g->t;
    unsigned char *out = tsr_conformance_rule_room(100), *in = tsr_conformance_rule_room(100);
    void          *s = NULL, *r = NULL;
    tsr_status     st = TSR_OK;
    if (!long_run)
        st = t->send(self[1], NULL, 0, out, 100, &s, err);
    if (st == TSR_OK)
        st = t->recv(self[0], NULL, 1, in, 100, &r, err);
    if (st == TSR_OK && r)
        st = long_run ? wait_in_vain(c, g, self[0], r, err)
                      : t->wait(self[0], r, TSR_GROUP_LONG_US, err);
    if (st == TSR_OK && s)
        st = t->wait(self[1], s, TSR_GROUP_LONG_US, err);
    tsr_conformance_guarded_free(out);
    tsr_conformance_guarded_free(in);
    return st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    struct tsr_conformance_group g;
    void                        *self[2] = { NULL, NULL };
    tsr_conformance_group_make(&g, c, 2);
    tsr_status st = tsr_conformance_group_enter(&g, 0, &self[0], err);
    if (st == TSR_OK) {
        st = tsr_conformance_group_enter(&g, 1, &self[1], err);
        if (st == TSR_OK) {
            st = traffic(c, &g, self, long_run, err);
            g.t->destroy(self[1]);
        }
        g.t->destroy(self[0]);
    }
    tsr_conformance_group_free(&g);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "transport-create",
      .text = "create() joins without waiting for the other ranks, in any order.",
      .run = tsr_transport_rule_create },
    { .name = "transport-sums",
      .text = "all_gather() gives every rank the same bytes in rank order, so that sums are the "
              "same over 1 to 8 ranks.",
      .limit_s = 60,
      .run = tsr_transport_rule_sums },
    { .name = "transport-all-to-all",
      .text = "all_to_all() takes block i of every rank to rank i, for 2 to 8 ranks.",
      .limit_s = 60,
      .run = tsr_transport_rule_all_to_all },
    { .name = "transport-messages",
      .text = "send() and recv() carry bytes between every pair of ranks, whole and unchanged.",
      .limit_s = 60,
      .run = tsr_transport_rule_messages },
    { .name = "transport-sizes",
      .text = "Messages of 0, 1 and a prime number of bytes arrive as they are, nothing is written "
              "outside them, and what is sent stays as it was.",
      .limit_s = 60,
      .run = tsr_transport_rule_sizes },
    { .name = "transport-order",
      .text = "Operations between the same pair of ranks complete in the order in which they were "
              "started.",
      .run = tsr_transport_rule_order },
    { .name = "transport-two-groups",
      .text = "Two groups of the same ranks do not mix.",
      .run = tsr_transport_rule_two_groups },
    { .name = "transport-processes",
      .text = "Ranks may be processes that share nothing but the world's memory.",
      .limit_s = 60,
      .run = tsr_transport_rule_processes },
    { .name = "transport-start-returns",
      .text = "Starting an operation does not wait for the peer: it gives a request, or NULL for "
              "\"ask again\".",
      .run = tsr_transport_rule_starts },
    { .name = "transport-test",
      .text = "test() returns at once and sets done when the operation has ended, not before.",
      .run = tsr_transport_rule_test },
    { .name = "transport-deadline",
      .text = "wait() gives TSR_E_DEVICE naming the rank that is late once its deadline has "
              "passed, never earlier, and does not hang.",
      .run = tsr_transport_rule_deadline },
    { .name = "transport-peer-leaves",
      .text = "An operation with a rank that has left the group is TSR_E_DEVICE, never done.",
      .run = tsr_transport_rule_peer_leaves },
    { .name = "transport-peer-dies",
      .text = "An operation with a rank whose process was killed is TSR_E_DEVICE by its deadline, "
              "unless all bytes had been taken.",
      .run = tsr_transport_rule_peer_dies },
    { .name = "transport-abort",
      .text = "abort() makes every operation of every rank fail soon with TSR_E_CANCELLED.",
      .run = tsr_transport_rule_abort },
    { .name = "transport-threads",
      .text =
          "A transport that does not state TSR_TRANSPORT_THREADS starts no thread; those of one "
          "that does end after destroy().",
      .run = tsr_transport_rule_threads },
    { .name = "transport-statics",
      .text = "Static memory changes only in a transport that states TSR_TRANSPORT_STATICS, and is "
              "as it was when its last instance has gone.",
      .run = tsr_transport_rule_statics },
    { .name = "transport-counts",
      .text = "A transport that counts says how many payload bytes its rank has sent to other "
              "ranks and received "
              "from them.",
      .run = tsr_transport_rule_counts },
};

const struct tsr_conformance_kind_rules tsr_transport_rules = {
    .kind = TSR_KIND_TRANSPORT,
    .noun = "transport",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
