/* tessera profile: the rounds of a point to one time at one rate of memory. */
#include "base/log.h"
#include "cli/profile/profile.h"

#include <math.h>

/* Ranges of concurrent tokens in which a scheme's times depend on the probe in the same way: the knots of
 * the file, write.c. */
#define RANGES 5u
static unsigned range_of(const struct profile_point *at)
{
    if (at->phase == TSR_PLAN_PREFILL)
        return at->v * at->s <= 96 ? 0 : 1;
    return at->v <= PROFILE_FEW ? 2 : at->v <= 16 ? 3 : 4;
}

/* Noise of probes of one memory at one speed: smaller differences are ignored. */
#define PROBE_NOISE 0.05

/* power[r]: ms goes with probe^-power[r]. */
static void find_powers(const struct profile *p, const struct profile_scheme *s,
                        double power[RANGES])
{
    double   sxx[RANGES] = { 0 }, sxy[RANGES] = { 0 }, share[RANGES] = { 0 };
    uint64_t n[RANGES] = { 0 }, points_of = s->n_grid ? s->n_grid : s->n_points;
    for (uint64_t i = 0; i < points_of; i++) {
        const struct profile_point *at = &s->points[i];
        unsigned                    r = range_of(at);
        double                      x = 0, y = 0, rounds = (double)s->rounds;
        for (uint64_t k = 0; k < s->rounds; k++) {
            x += log(at->round_probe[k]) / rounds;
            y -= log(at->round_ms[k]) / rounds;
        }
        for (uint64_t k = 0; k < s->rounds; k++) {
            double dx = log(at->round_probe[k]) - x;
            sxx[r] += dx * dx;
            sxy[r] += dx * (-log(at->round_ms[k]) - y);
        }
        if (at->phase == TSR_PLAN_DECODE &&
            at->v <= PROFILE_FEW) /* ms that reading takes, of all */
            share[r] += fmin(1e3 * (double)s->layer_bytes / p->bandwidth * exp(y), 1);
        n[r] += s->rounds;
    }
    for (unsigned r = 0; r < RANGES; r++) {
        double points = (double)n[r] / (double)s->rounds;
        double weight = (double)n[r] * PROBE_NOISE * PROBE_NOISE;
        double prior = points > 0 ? share[r] / points : 0;
        power[r] = weight > 0 ? (weight * prior + sxy[r]) / (weight + sxx[r]) : 0;
        power[r] = fmax(-1, fmin(power[r], 1));
    }
}

void profile_average(struct profile *p, struct profile_scheme *s)
{
    double power[RANGES];
    if (s->rounds == 0)
        return;
    find_powers(p, s, power);
    for (uint64_t i = 0; i < s->n_points; i++) {
        struct profile_point *at = &s->points[i];
        double                raw = 0, normal = 0;
        for (uint64_t k = 0; k < s->rounds; k++) {
            raw += log(at->round_ms[k]);
            normal += log(at->round_probe[k] / p->bandwidth);
        }
        at->raw_ms = exp(raw / (double)s->rounds);
        at->power = power[range_of(at)];
        at->ms = exp((raw + at->power * normal) / (double)s->rounds);
        at->probe = p->bandwidth;
    }
    tsr_logf(TSR_LOG_DEBUG,
             "%s: times follow the read probe by powers of %.2f (prompts up to 96 tokens), %.2f "
             "(longer), %.2f (steps of up to 4 sequences), %.2f (16), %.2f (more)",
             s->kernel, -power[0], -power[1], -power[2], -power[3], -power[4]);
}
