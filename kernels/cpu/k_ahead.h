/* k_ahead.h - weights of the next block of columns, fetched while the tiles of this one run.  A share of
 * them in front of each tile: all at once, the block would wait for them.
 */
#ifndef TSR_K_AHEAD_H
#define TSR_K_AHEAD_H

#include "kernels.h"
#include "simd.h"

struct ahead {
    const uint8_t *from;
    uint64_t       lines, at;
};

/* Behind columns [k, k+n) of a panel: its next ones, at most `most`, or the first ones of the panel that
 * is np behind it. */
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
