/* ranks.h - groups of the transport nccl over the stand-in of its libraries (standin.h), for its tests. */
#ifndef TSR_TEST_NCCL_RANKS_H
#define TSR_TEST_NCCL_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/group.h"
#include "plugin_open.h"
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LONG_US   UINT64_C(30000000) /* only a hang reaches it */
#define SHORT_US  UINT64_C(100000)
#define MAX_RANKS 8

extern struct tsr_registry *registry;
int                         open_all(void **state); /* setup of a group of tests, and its end */
int                         close_all(void **state);

struct group {
    const char           *spec;
    uint32_t              ranks;
    struct tsr_comm_world world;
    struct tsr_comm_port  port[MAX_RANKS];
};

void       make(struct group *g, const char *spec, uint32_t ranks);
tsr_status join(struct group *g, uint32_t rank, uint64_t epoch, struct tsr_errbuf *e);
void       join_all(struct group *g);
void       end(struct group *g);
/* The transport's functions, and a rank's instance. */
const struct tsr_transport_v1 *table(void);
void                          *self_of(struct group *g, uint32_t rank);
/* Nothing that the libraries gave is left, and nothing was asked of them that they do not allow. */
void all_given_back(void);

unsigned char pattern(uint32_t from, uint32_t to, uint64_t n, uint64_t i);

enum kind { SEND, RECV, GATHER };
extern char room[3][16384]; /* of a rank, to receive into */
void       *start(struct group *g, uint32_t rank, enum kind kind, uint32_t peer, void *buf,
                  uint64_t bytes);
/* Waits for it: that status, and that text in its sentence where there is one. */
void ends(struct group *g, uint32_t rank, void *q, uint64_t us, tsr_status want, const char *text);
void refused(struct group *g, uint32_t rank, uint32_t peer, const char *text);
/* The two of a pair send and receive a small message: it works. */
void works(struct group *g, uint32_t from, uint32_t to);

#endif
