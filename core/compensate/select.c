/* Bucket floors and the baselines of a selection. */
#include "compensate/select.h"

#include "base/f16.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

const struct tsr_choice tsr_compensate_select_choices[5] = {
    { "dynamic", "by magnitude, in 32 buckets per 1024 channels", TSR_COMPENSATE_SELECT_DYNAMIC },
    { "exact", "the largest magnitudes", TSR_COMPENSATE_SELECT_EXACT },
    { "random", "drawn for every token", TSR_COMPENSATE_SELECT_RANDOM },
    { "static-meansq", "the largest mean squares of the calibration",
      TSR_COMPENSATE_SELECT_STATIC_MEANSQ },
    { "static-hessian", "mean square times what was lost, of the calibration",
      TSR_COMPENSATE_SELECT_STATIC_HESSIAN },
};

uint64_t tsr_compensate_select_count(uint64_t k, uint64_t channels)
{
    /* chunk by chunk: no product that could overflow */
    return channels / TSR_COMPENSATE_CHUNK * k +
           channels % TSR_COMPENSATE_CHUNK * k / TSR_COMPENSATE_CHUNK;
}

bool tsr_compensate_select_borders(const float *top, uint64_t channels, uint64_t k, float *b0,
                                   float *b15)
{
    uint64_t count = tsr_compensate_select_count(k, channels);
    if (count == 0)
        return false;
    *b0 = top[0];
    *b15 = top[count - 1];
    return true;
}

void tsr_compensate_select_floors(float b0, float b15, float floors[TSR_COMPENSATE_BUCKETS])
{
    double a = (double)b0, b = (double)b15;
    for (int i = 0; i < 15; i++)
        floors[i] = (float)(a + (b - a) * i / 15);
    floors[15] = b15;
    for (int i = 16; i < 32; i++)
        floors[i] = (float)(b * (31 - i) / 16);
}

/* ---- the largest ------------------------------------------------------------------------------ */

/* A key that orders as the value does: larger floats, larger keys; NaN 0. */
static uint32_t key_of(float v)
{
    uint32_t u = tsr_f32_bits(v);
    if (!(v == v))
        return 0;
    if (v == 0)
        u = 0; /* one zero */
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The count-th largest key, byte by byte; *equal: how many of that key are still taken. */
static uint32_t threshold(const uint32_t *key, uint64_t n, uint64_t count, uint64_t *equal)
{
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t histogram[256] = { 0 };
        uint32_t b = 255;
        for (uint64_t i = 0; i < n; i++)
            if ((key[i] & mask) == prefix)
                histogram[key[i] >> shift & 255]++;
        while (histogram[b] < count)
            count -= histogram[b--];
        prefix |= b << shift;
        mask |= UINT32_C(255) << shift;
    }
    *equal = count;
    return prefix;
}

static void take(const uint32_t *key, uint64_t n, uint64_t count, uint32_t *list)
{
    uint64_t equal = 0;
    uint32_t there = 0;
    for (uint64_t i = 0; i < n; i++)
        there += key[i] != 0;
    count = count < there ? count : there;
    list[0] = (uint32_t)count;
    if (count == 0)
        return;
    uint32_t least = threshold(key, n, count, &equal);
    for (uint64_t i = 0, at = 1; i < n && at <= count; i++)
        if (key[i] > least || (key[i] == least && equal > 0)) {
            equal -= key[i] == least;
            list[at++] = (uint32_t)i;
        }
}

void tsr_compensate_select_top(const float *score, uint64_t channels, uint64_t count,
                               uint32_t *list, uint32_t *scratch)
{
    for (uint64_t i = 0; i < channels; i++)
        scratch[i] = key_of(score[i]);
    take(scratch, channels, count, list);
}

void tsr_compensate_select_exact(const float *x, uint64_t channels, uint64_t count, uint32_t *list,
                                 uint32_t *scratch)
{
    for (uint64_t i = 0; i < channels; i++)
        scratch[i] = key_of(fabsf(x[i]));
    take(scratch, channels, count, list);
}

/* ---- the rest ---------------------------------------------------------------------------------- */

void tsr_compensate_select_random(uint64_t seed, uint64_t site, uint64_t position,
                                  uint64_t channels, uint64_t count, uint32_t *list)
{
    uint64_t left = count;
    uint32_t at = 1;
    list[0] = (uint32_t)count;
    for (uint64_t i = 0; i < channels && left > 0; i++) {
        /* each of the channels that are left with the same chance (Knuth 3.4.2, algorithm S) */
        double u = tsr_uniform(seed, site << 32 | position, i);
        if (u * (double)(channels - i) < (double)left) {
            list[at++] = (uint32_t)i;
            left--;
        }
    }
}

uint64_t tsr_compensate_select_common(const uint32_t *list, const uint32_t *of)
{
    uint64_t n = 0;
    for (uint32_t i = 1, j = 1; i <= list[0] && j <= of[0];) {
        n += list[i] == of[j];
        if (list[i] == of[j]) {
            i++;
            j++;
        } else if (list[i] < of[j]) {
            i++;
        } else {
            j++;
        }
    }
    return n;
}
