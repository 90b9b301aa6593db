#include "engine/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

static double clamp(double v, double lo, double hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between
 * blended. */
static double llama3_frequency(const struct tsr_model_rope *r, double f)
{
    double old = (double)r->original_positions, wavelength = 2 * PI / f;
    if (wavelength > old / r->low_freq_factor)
        return f / r->factor;
    if (wavelength < old / r->high_freq_factor)
        return f;
    double smooth =
        (old / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * f / r->factor + smooth * f;
}

/* YaRN: the dimension that turns `turns` times within the original positions. */
static double yarn_dimension(const struct tsr_model_rope *r, double turns)
{
    return r->dim * log((double)r->original_positions / (turns * 2 * PI)) / (2 * log(r->theta));
}

static double yarn_frequency(const struct tsr_model_rope *r, uint32_t i, double f)
{
    double low = yarn_dimension(r, r->beta_fast), high = yarn_dimension(r, r->beta_slow);
    low = fmax(r->whole_ramp ? floor(low) : low, 0);
    high = fmin(r->whole_ramp ? ceil(high) : high, r->dim - 1.0);
    if (low == high)
        high += 0.001; /* as the reference avoids 0/0 */
    double keep = 1 - clamp((i - low) / (high - low), 0, 1);
    return f / r->factor * (1 - keep) + f * keep;
}

bool tsr_engine_rope_varies(const struct tsr_model_rope *r)
{
    return r->scaling == TSR_MODEL_ROPE_LONG || r->scaling == TSR_MODEL_ROPE_DYNAMIC_NTK;
}

void tsr_engine_rope_frequencies(const struct tsr_model_rope *r, uint64_t length, double *inv)
{
    double theta = r->theta;
    if (r->scaling == TSR_MODEL_ROPE_DYNAMIC_NTK && length > r->original_positions) {
        double grown = r->factor * (double)length / (double)r->original_positions - (r->factor - 1);
        theta *= pow(grown, r->dim / (r->dim - 2.0));
    }
    const float *factors = length > r->original_positions ? r->long_factor : r->short_factor;
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        double f = 1 / pow(theta, 2.0 * i / r->dim);
        switch (r->scaling) {
        case TSR_MODEL_ROPE_LINEAR:
            f /= r->factor;
            break;
        case TSR_MODEL_ROPE_LLAMA3:
            f = llama3_frequency(r, f);
            break;
        case TSR_MODEL_ROPE_LONG:
            f /= (double)factors[i];
            break;
        case TSR_MODEL_ROPE_YARN:
            f = yarn_frequency(r, i, f);
            break;
        case TSR_MODEL_ROPE_NONE:
        case TSR_MODEL_ROPE_DYNAMIC_NTK:
            break;
        }
        inv[i] = f;
    }
}

void tsr_engine_rope_angles(const struct tsr_model_rope *r, const double *inv, uint64_t length,
                            uint64_t position, float *cosine, float *sine)
{
    bool   is_long = r->scaling == TSR_MODEL_ROPE_LONG && length > r->original_positions;
    double attention = r->attention_factor * (is_long ? (double)r->long_ratio : 1.0);
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        double angle = (double)position * inv[i];
        cosine[i] = (float)(cos(angle) * attention);
        sine[i] = (float)(sin(angle) * attention);
    }
}

void tsr_engine_alibi_slopes(uint32_t heads, float *slopes)
{
    uint32_t closest = 1;
    while (closest <= heads / 2)
        closest *= 2;
    /* The first power-of-two many heads take 2^(-8i/closest); the others the odd steps of the
     * next finer ladder. */
    for (uint32_t i = 0; i < heads; i++) {
        double step =
            i < closest ? 8.0 * (i + 1) / closest : 4.0 * (2.0 * (i - closest) + 1) / closest;
        slopes[i] = (float)exp2(-step);
    }
}
