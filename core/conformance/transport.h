/* conformance/transport.h - what the files of transport rules share: groups of ranks on threads. */
#ifndef TSR_CONFORMANCE_TRANSPORT_H
#define TSR_CONFORMANCE_TRANSPORT_H

#include "conformance/helpers.h"
#include "tessera/transport.h"

#define TSR_GROUP_MAX 8u
/* Far above what any operation takes on a loaded machine, below a rule's own limit. */
#define TSR_GROUP_LONG_US UINT64_C(15000000)

struct tsr_group {
    struct tsr_case               *c;
    const struct tsr_transport_v1 *t;
    uint32_t                       ranks;
    void                          *shared;
    uint64_t                       bytes;
};

/* A world of its own, shared with children of this process too. */
void tsr_group_make(struct tsr_group *g, struct tsr_case *c, uint32_t ranks);
void tsr_group_free(struct tsr_group *g);
/* Skips the rule where it has no process of its own (--in-process). */
void tsr_group_forked(struct tsr_case *c);
/* Joins; a refusal fails the rule. */
void *tsr_group_join(const struct tsr_group *g, uint32_t rank);

/* Runs work(g, rank, self) for every rank on a thread of its own, between join and destroy. */
void tsr_group_run(const struct tsr_group *g,
                   void (*work)(const struct tsr_group *g, uint32_t rank, void *self));

/* Start an operation, asking again while there is no room; a refusal fails the rule. */
void *tsr_group_send(const struct tsr_group *g, void *self, uint32_t rank, uint32_t to,
                     const void *buf, uint64_t bytes);
void *tsr_group_recv(const struct tsr_group *g, void *self, uint32_t rank, uint32_t from, void *buf,
                     uint64_t bytes);
void *tsr_group_collect(const struct tsr_group *g, void *self, uint32_t rank, bool to_all,
                        const void *send, void *recv, uint64_t bytes);
/* Waits for it, with a deadline that only a hang reaches. */
void tsr_group_wait(const struct tsr_group *g, void *self, uint32_t rank, void *request);

/* Byte i of message n from rank `from` to rank `to`. */
unsigned char tsr_group_byte(uint32_t from, uint32_t to, uint64_t n, uint64_t i);
void          tsr_group_fill(void *buf, uint32_t from, uint32_t to, uint64_t n, uint64_t bytes);
/* Fails the rule at the first byte that is another. */
void tsr_group_check(const struct tsr_group *g, uint32_t rank, const void *buf, uint32_t from,
                     uint32_t to, uint64_t n, uint64_t bytes, const char *what);

/* transport_bytes.c */
void tsr_transport_rule_sums(struct tsr_case *c);
void tsr_transport_rule_all_to_all(struct tsr_case *c);
void tsr_transport_rule_messages(struct tsr_case *c);
void tsr_transport_rule_sizes(struct tsr_case *c);
void tsr_transport_rule_order(struct tsr_case *c);
void tsr_transport_rule_two_groups(struct tsr_case *c);
void tsr_transport_rule_processes(struct tsr_case *c);

/* transport_late.c: what holds when a rank does not do its part */
void tsr_transport_rule_deadline(struct tsr_case *c);
void tsr_transport_rule_peer_leaves(struct tsr_case *c);
void tsr_transport_rule_peer_dies(struct tsr_case *c);
void tsr_transport_rule_abort(struct tsr_case *c);
void tsr_transport_rule_starts(struct tsr_case *c);
void tsr_transport_rule_create(struct tsr_case *c);
void tsr_transport_rule_test(struct tsr_case *c);

#endif
