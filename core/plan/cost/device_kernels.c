/* The kernels of a device profile: which there are, whose they are, and which a scheme takes. */
#include "plan/cost/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tsr_plan_profile_runs(const struct tsr_plan_profile *p, const char *kernel)
{
    for (uint64_t i = 0; i < p->n_kernels; i++)
        if (strcmp(p->kernels[i].kernel, kernel) == 0)
            return true;
    for (uint64_t i = 0; i < p->n_points; i++)
        if (strcmp(p->points[i].kernel, kernel) == 0)
            return true;
    return false;
}

/* The first number in a kernel's name is its bit width; of MX elements ("fp4_e2m1", "mxint4") too. */
static long bits_of(const char *kernel)
{
    size_t at = strcspn(kernel, "0123456789");
    return kernel[at] ? strtol(kernel + at, NULL, 10) : 0;
}

static bool is_float(const char *kernel)
{
    return strcmp(kernel, "f32") == 0 || strcmp(kernel, "f16") == 0 || strcmp(kernel, "bf16") == 0;
}

/* How unlike a kernel is: the sort counts more than any difference of widths. */
static long unlike(const char *kernel, const char *other)
{
    size_t n = strcspn(kernel, "0123456789"), m = strcspn(other, "0123456789");
    bool same = (is_float(kernel) && is_float(other)) || (n == m && memcmp(kernel, other, n) == 0);
    long d = bits_of(other) - bits_of(kernel);
    return (same ? 0 : 1000) + (d < 0 ? -2 * d + 1 : 2 * d);
}

const char *tsr_plan_profile_closest(const struct tsr_plan_profile *p, const char *kernel)
{
    const char *best = NULL;
    for (uint64_t i = 0; i < p->n_kernels + p->n_points; i++) {
        const char *one =
            i < p->n_kernels ? p->kernels[i].kernel : p->points[i - p->n_kernels].kernel;
        if (!best || unlike(kernel, one) < unlike(kernel, best))
            best = one;
    }
    return best;
}

void tsr_plan_profile_scheme_kernel(const struct tsr_plan_profile *p, const char *scheme,
                                    char kernel[TSR_PLAN_KERNEL_TEXT])
{
    char own[TSR_PLAN_KERNEL_TEXT];
    int  n = snprintf(own, sizeof own, "%s/%s", scheme ? scheme : "", kernel);
    if (scheme && n > 0 && n < (int)sizeof own && tsr_plan_profile_runs(p, own))
        memcpy(kernel, own, (size_t)n + 1);
    else if (strchr(kernel, '.') && !tsr_plan_profile_runs(p, kernel))
        (void)snprintf(kernel, TSR_PLAN_KERNEL_TEXT, "f32"); /* a plugin's own: decoded */
}

void tsr_plan_profile_kernels(const struct tsr_plan_profile *p, char text[TSR_PLAN_KERNELS_TEXT])
{
    static const char ours[] = "tessera profile"; /* cli/profile writes it */
    const char *source = p->n_points ? p->points[0].source : p->n_ends ? p->ends[0].source : NULL;
    if (!source)
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "not measured");
    else if (*p->measured_on)
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "%s", p->measured_on);
    else if (strncmp(source, ours, strlen(ours)) == 0)
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "Tessera's own");
    else {
        size_t n = strcspn(source, ",;(");
        while (n && source[n - 1] == ' ')
            n--;
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "others': %.*s", (int)(n < 64 ? n : 64),
                       source);
    }
}
