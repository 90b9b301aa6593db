/* simt_block.h - the current block: simt.c chooses its next thread, simt_fiber.c switches to it, simt_launch.c chooses
 * the block. */
#ifndef TSR_SIMT_BLOCK_H
#define TSR_SIMT_BLOCK_H

#include "simt.h"

#include <stddef.h>

#define SIMT_STACK_BYTES (UINT64_C(64) << 10)
#define SIMT_COPIES      128u /* of a thread under way, at most */

enum simt_state { READY, AT_BARRIER, AT_WARP, DONE };

struct simt_fiber {
    void           *sp; /* where it resumes */
    enum simt_state state;
    int             line; /* where it waits */
    /* at a warp operation: its input and its result */
    enum simt_warp_op op;
    uint32_t          mask, value, lane, result;
    uint32_t          warps;  /* operations of the whole warp that it has been through */
    bool              waited; /* simt_wait_for_previous() */
    /* fragments at a product of matrices */
    void           *c; /* int32_t[4], or float[4] */
    const uint32_t *a, *b;
    /* copies under way: a ring */
    struct simt_copy {
        void       *to;
        const void *from;
        uint32_t    group, bytes;
    } copies[SIMT_COPIES];
    uint32_t n_copies, first_copy, group; /* group: the one that copies join now */
    void    *fake;                        /* of the address sanitizer */
    void    *calls;                       /* of the thread sanitizer */
};

/* A launch. Its blocks begin one after the other; one that waits for a flag is left, and goes on later. */
struct simt_resident {
    struct simt_launch l;
    uint64_t           n, begun, at, step; /* blocks; those that have begun; the next one */
    uint64_t           random, first_thread;
    struct simt_block *left; /* a list */
    uint32_t           n_left;
    bool               failed;
    char               text[400];
};

struct simt_block {
    struct simt_block        *next; /* left, or spare */
    struct simt_resident     *resident;
    const struct simt_launch *launch;
    struct simt_fiber         fibers[SIMT_THREADS_MAX];
    uint32_t                  ready[SIMT_THREADS_MAX]; /* runnable threads: a ring */
    uint32_t                  n_ready, first_ready;
    uint32_t                  current, live, at_barrier, block[3], barriers;
    uint32_t                  waiting[SIMT_THREADS_MAX / 32]; /* of a warp, at an operation of it */
    uint64_t                  block_number;
    void                     *scheduler; /* its stack pointer */
    void                     *scheduler_fake, *scheduler_calls;
    const void               *scheduler_stack;
    size_t                    scheduler_bytes;
    uint8_t                  *stacks;
    uint32_t                  n_stacks;
    uint8_t                  *shared; /* its shared memory while it is left */
    bool                      leaves; /* another block goes on */
};
extern struct simt_block *simt_now; /* NULL: no kernel runs */

/* simt.c.  All threads of the current block are at the start; it runs until it ends, is left (false) or fails. */
void simt_block_begin(void);
bool simt_block_run(void);
/* A number of the launch's schedule; 0 without a seed. */
uint64_t simt_draw(struct simt_resident *r, uint64_t below);

/* simt_weak.c.  A launch begins; it has ended. */
void simt_weak_begin(const struct simt_resident *l);
void simt_weak_end(const struct simt_resident *l);

/* The product of the warp that begins with thread `first`, of int8 or of F16: all its lanes have arrived. */
void simt_multiply(uint32_t first, uint32_t mask);
/* Suspends the current thread until the scheduler resumes it; ends: forever. */
void simt_to_scheduler(bool ends);
/* Resumes thread i until it suspends. */
void simt_to_fiber(uint32_t i);
/* Room for so many stacks; false: no memory.  The lowest page of each is left without access, so that a deep stack dies
 * at once. */
bool simt_make_stacks(struct simt_block *b, uint32_t threads);
/* Thread i is at the start of the kernel. */
void simt_start_fiber(uint32_t i);

#endif
