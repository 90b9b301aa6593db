/* compensate/select.h - which input channels of a linear are compensated.
 *
 * The device selects by buckets (tessera/draft/compensate.h); here are its bucket floors, and the other
 * ways to select that it is compared with.  k counts channels in 1024.
 */
#ifndef TSR_COMPENSATE_SELECT_H
#define TSR_COMPENSATE_SELECT_H

#include "base/err.h"
#include "tessera/draft/compensate.h"

#include <stdbool.h>

enum tsr_compensate_select {
    TSR_COMPENSATE_SELECT_DYNAMIC,       /* buckets, per chunk of 1024 channels */
    TSR_COMPENSATE_SELECT_EXACT,         /* the largest |x| of the whole vector */
    TSR_COMPENSATE_SELECT_RANDOM,        /* drawn again for every token */
    TSR_COMPENSATE_SELECT_STATIC_MEANSQ, /* the largest mean x^2 of the calibration */
    TSR_COMPENSATE_SELECT_STATIC_HESSIAN, /* the largest mean x^2 times the energy of what was lost */
};
extern const struct tsr_choice tsr_compensate_select_choices[5];

/* The number of selected channels of `channels`: floor(k * channels / 1024), which equals the sum
 * over the chunks.  k up to 1024. */
uint64_t tsr_compensate_select_count(uint64_t k, uint64_t channels);

/* top [channels]: the largest |x| that any calibration token had at each rank, descending.  The two
 * borders for k: b0 = top[0], b15 = top[count - 1]; false: count is 0.  Floors: 15 equal steps from b0
 * to b15, 16 from there to 0, each taken in double and rounded once. */
bool tsr_compensate_select_borders(const float *top, uint64_t channels, uint64_t k, float *b0,
                                   float *b15);
void tsr_compensate_select_floors(float b0, float b15, float floors[TSR_COMPENSATE_BUCKETS]);

/* Lists are as the device's: the count, then channels ascending. */
/* The `count` largest of score [channels], of equal ones the lowest index; NaN is never taken.
 * scratch: channels words. */
void tsr_compensate_select_top(const float *score, uint64_t channels, uint64_t count,
                               uint32_t *list, uint32_t *scratch);
/* As tsr_compensate_select_top() by |x|. */
void tsr_compensate_select_exact(const float *x, uint64_t channels, uint64_t count, uint32_t *list,
                                 uint32_t *scratch);
/* count different channels, a function of seed, site and position alone (selection sampling). */
void tsr_compensate_select_random(uint64_t seed, uint64_t site, uint64_t position,
                                  uint64_t channels, uint64_t count, uint32_t *list);
/* How many of `of` are in `list`. */
uint64_t tsr_compensate_select_common(const uint32_t *list, const uint32_t *of);

#endif
