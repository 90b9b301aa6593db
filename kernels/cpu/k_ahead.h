/* k_ahead.h - prefetches the weights of the next block of columns while the tiles of this block run. Each
 * tile is preceded by a share of the prefetches: issued all at once, they would stall the block.
 */
#ifndef TSR_K_AHEAD_H
#define TSR_K_AHEAD_H

#include "kernels.h"
#include "simd.h"

struct ahead {
    const uint8_t *from;
    uint64_t       lines, at;
};

/* What follows columns [k, k+n) of a panel: its next columns, at most `most`, or the first columns of the
 * panel at index panel + np. */
INLINE struct ahead look_ahead(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t np,
                               uint64_t k, uint64_t n, uint64_t most)
{
    uint64_t per = w->panel_bytes / w->cols, next = k + n;
    if (next >= w->cols) {
        panel += np;
        next = 0;
    }
    if (panel >= w->panels)
        return (struct ahead){ 0 };
    uint64_t cols = w->cols - next < most ? w->cols - next : most;
    return (struct ahead){ w->codes + panel * w->panel_bytes + next * per, cols * per / 64, 0 };
}

/* In front of one of so many tiles. */
INLINE void fetch_share(struct ahead *f, uint64_t tiles)
{
    uint64_t end = f->at + f->lines / tiles + 1;
    for (; f->at < end && f->at < f->lines; f->at++)
        v_prefetch_l2(f->from + 64 * f->at);
}

#endif
