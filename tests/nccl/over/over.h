/* over.h - what over.c gives standin_nccl.c and the tests, which know it by the names in ../standin.h. */
#ifndef TSR_TEST_OVER_H
#define TSR_TEST_OVER_H

#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

void  over_lock(void);
void  over_unlock(void);
void *over_place(const void *address, uint64_t bytes);
bool  over_has_context(void);
void  over_move(void);
bool  over_push(void *stream, bool (*run)(void *), void *arg);

struct over_left { /* struct standin_live */
    uint64_t contexts, blocks, streams, events;
};
struct over_left standin_live(void);
uint64_t         standin_taken(void);
void             standin_move(void);

#endif
