/* What is said of differences. */
#include "compare/verdict.h"

#include <math.h>
#include <string.h>

const char *compare_word(double mean, double p, double alpha)
{
    if (p < alpha && mean > 0)
        return "worse";
    if (p < alpha && mean < 0)
        return "better";
    return p >= alpha ? "indistinguishable" : "undecided";
}

/* "p 0.012"; a p below what doubles hold has a bound. */
static void say_p(char *text, size_t cap, double p)
{
    compare_add(text, cap, ", p %s%.2g", p < 1e-300 ? "< " : "", p < 1e-300 ? 1e-300 : p);
}

/* A test without the correction would have decided: the interval lies on one side of zero. */
static int is_corrected_away(const struct tsr_eval_difference *d, const char *word, double alpha)
{
    return strcmp(word, "indistinguishable") == 0 && d->p < alpha;
}

void compare_say_perplexity(char *text, size_t cap, const struct tsr_eval_difference *d, double p,
                            double alpha)
{
    const char *word = compare_word(d->mean, p, alpha);
    if (strcmp(word, "undecided") == 0) {
        compare_add(text, cap, "undecided: one window is too few for an interval");
        return;
    }
    int away = is_corrected_away(d, word, alpha);
    compare_add(text, cap, "%s%s", word, away ? " once corrected" : "");
    if (away || strcmp(word, "indistinguishable") != 0) {
        compare_add(text, cap, ": perplexity %+.2f %% [%+.2f, %+.2f]", 100 * expm1(d->mean),
                    100 * expm1(d->low), 100 * expm1(d->high));
        say_p(text, cap, p);
    }
    if (strcmp(word, "indistinguishable") == 0)
        compare_add(text, cap, "%s a change of %.2f %% would have been found", away ? ";" : ":",
                    100 * expm1(d->detectable));
}

void compare_say_kl(char *text, size_t cap, const struct tsr_eval_difference *d, double p,
                    double alpha)
{
    const char *word = compare_word(d->mean, p, alpha);
    if (strcmp(word, "undecided") == 0)
        return;
    int away = is_corrected_away(d, word, alpha);
    compare_add(text, cap, "; by KL %s%s", word, away ? " once corrected" : "");
    if (away || strcmp(word, "indistinguishable") != 0) {
        compare_add(text, cap, ": %+.4g nats [%+.4g, %+.4g]", d->mean, d->low, d->high);
        say_p(text, cap, p);
    }
    if (strcmp(word, "indistinguishable") == 0)
        compare_add(text, cap, "%s a difference of %.2g nats would have been found",
                    away ? ";" : ":", d->detectable);
}
