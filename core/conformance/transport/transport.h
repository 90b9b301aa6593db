/* conformance/transport/transport.h - shared by the files of transport rules: groups of ranks on threads. */
#ifndef TSR_CONFORMANCE_TRANSPORT_TRANSPORT_H
#define TSR_CONFORMANCE_TRANSPORT_TRANSPORT_H

#include "conformance/helpers.h"
#include "tessera/transport.h"

#define TSR_GROUP_MAX 8u
/* Far longer than any operation takes on a loaded machine, below a rule's own limit. */
#define TSR_GROUP_LONG_US UINT64_C(15000000)

struct tsr_conformance_group {
    struct tsr_conformance_case   *c;
    const struct tsr_transport_v1 *t;
    uint32_t                       ranks;
    void                          *shared;
    uint64_t                       bytes;
};

/* A new world, also shared with children of this process. */
void tsr_conformance_group_make(struct tsr_conformance_group *g, struct tsr_conformance_case *c,
                                uint32_t ranks);
void tsr_conformance_group_free(struct tsr_conformance_group *g);
/* Skips the rule if it does not run in a separate process (--in-process). */
void       tsr_conformance_group_forked(struct tsr_conformance_case *c);
tsr_status tsr_conformance_group_enter(const struct tsr_conformance_group *g, uint32_t rank,
                                       void **self, struct tsr_err *err);
/* The same; a refusal fails the rule. */
void *tsr_conformance_group_join(const struct tsr_conformance_group *g, uint32_t rank);

/* Runs work(g, rank, self) for every rank on a separate thread, between join and destroy. */
void tsr_conformance_group_run(const struct tsr_conformance_group *g,
                               void (*work)(const struct tsr_conformance_group *g, uint32_t rank,
                                            void *self));

/* Start an operation and retry while there is no room; a refusal fails the rule. */
void *tsr_conformance_group_send(const struct tsr_conformance_group *g, void *self, uint32_t rank,
                                 uint32_t to, const void *buf, uint64_t bytes);
void *tsr_conformance_group_recv(const struct tsr_conformance_group *g, void *self, uint32_t rank,
                                 uint32_t from, void *buf, uint64_t bytes);
void *tsr_conformance_group_collect(const struct tsr_conformance_group *g, void *self,
                                    uint32_t rank, bool to_all, const void *send, void *recv,
                                    uint64_t bytes);
/* Waits for it, with a deadline that only a hang reaches. */
void tsr_conformance_group_wait(const struct tsr_conformance_group *g, void *self, uint32_t rank,
                                void *request);

/* The bytes of message n from rank `from` to rank `to`. */
void tsr_conformance_group_fill(void *buf, uint32_t from, uint32_t to, uint64_t n, uint64_t bytes);
/* Fails the rule at the first byte that is another. */
void tsr_conformance_group_check(const struct tsr_conformance_group *g, uint32_t rank,
                                 const void *buf, uint32_t from, uint32_t to, uint64_t n,
                                 uint64_t bytes, const char *what);

/* bytes.c */
void tsr_transport_rule_sums(struct tsr_conformance_case *c);
void tsr_transport_rule_all_to_all(struct tsr_conformance_case *c);
void tsr_transport_rule_messages(struct tsr_conformance_case *c);
void tsr_transport_rule_sizes(struct tsr_conformance_case *c);
void tsr_transport_rule_order(struct tsr_conformance_case *c);
void tsr_transport_rule_two_groups(struct tsr_conformance_case *c);
void tsr_transport_rule_processes(struct tsr_conformance_case *c);
void tsr_transport_rule_counts(struct tsr_conformance_case *c);

/* late.c: required behaviour when a rank does not take part */
void tsr_transport_rule_deadline(struct tsr_conformance_case *c);
void tsr_transport_rule_peer_leaves(struct tsr_conformance_case *c);
void tsr_transport_rule_peer_dies(struct tsr_conformance_case *c);
void tsr_transport_rule_abort(struct tsr_conformance_case *c);
void tsr_transport_rule_starts(struct tsr_conformance_case *c);
void tsr_transport_rule_create(struct tsr_conformance_case *c);
void tsr_transport_rule_test(struct tsr_conformance_case *c);

/* needs.c: behaviour that only a transport that declares it may have */
void tsr_transport_rule_threads(struct tsr_conformance_case *c);
void tsr_transport_rule_statics(struct tsr_conformance_case *c);

#endif
