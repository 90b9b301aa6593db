/* frames.h - the messages that went over the stand-in of NCCL between two moments, to compare with others. */
#ifndef TSR_TEST_FRAMES_H
#define TSR_TEST_FRAMES_H

#include <stdint.h>

struct frames {
    struct frame *all; /* in an order of their own: by size, then bytes */
    uint64_t      n, bytes;
};

/* From now on, until frames_end() fills *f, which frames_free() gives back.  One at a time. */
void frames_begin(void);
void frames_end(struct frames *f);
void frames_free(struct frames *f);
/* Both have the same messages, to the bit. */
int frames_equal(const struct frames *a, const struct frames *b);

#endif
