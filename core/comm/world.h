/* comm/world.h - memory shared by the ranks of a group, and how a rank joins.
 *
 * Threads share a world directly; forked processes keep its mapping; other processes receive its file
 * descriptor and map it. No name, no file system: a memfd, closed on exec unless it is passed on.
 */
#ifndef TSR_COMM_WORLD_H
#define TSR_COMM_WORLD_H

#include "plugin/spec.h"
#include "tessera/transport.h"

/* One rank's place in a group. */
struct tsr_comm_place {
    const char *transport;   /* "local:ring=256" */
    uint32_t    rank, ranks; /* in this group */
    void       *shared;      /* tsr_comm_world's; NULL where the transport needs none */
    uint64_t    shared_bytes;
    uint64_t    epoch; /* of the group: another one after every restart */
    const char *under; /* spec of the transport under it, "mpi:first=2,tag=5"; NULL: default */
};

struct tsr_comm_world {
    void    *shared;
    uint64_t bytes; /* 0: the transport needs none, shared is NULL and fd -1 */
    int      fd;
};

/* Zeroed memory for `ranks` ranks of a transport.  [setup] */
tsr_status tsr_comm_world_create(struct tsr_comm_world *w, struct tsr_registry *r,
                                 const char *transport, uint32_t ranks, struct tsr_err *err);
void       tsr_comm_world_close(struct tsr_comm_world *w);

/* A transport that this rank has joined. */
struct tsr_comm_port {
    struct tsr_plugin_spec         spec;
    const struct tsr_transport_v1 *iface;
    void                          *self;
    /* NULL where the transport does not count */
    const struct tsr_transport_counts_v1 *counts;
    struct tsr_comm_port                 *under; /* the transport that it requires; NULL: none */
};

/* TSR_E_INPUT for a transport that does not exist or its options.  [setup] */
tsr_status tsr_comm_port_open(struct tsr_comm_port *p, struct tsr_registry *r,
                              const struct tsr_comm_place *place, struct tsr_err *err);
void       tsr_comm_port_close(struct tsr_comm_port *p); /* also of a zeroed one */

#endif
