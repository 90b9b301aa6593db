#include "config/config.h"

#include <string.h>

/* Longer words are not typos of a key. */
#define WORD_MAX 64

/* Damerau-Levenshtein distance (insert, delete, replace, swap neighbours); both <= WORD_MAX. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
    unsigned row[3][WORD_MAX + 1];
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *cur = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        cur[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned d = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < d)
                d = up[j] + 1;
            if (cur[j - 1] + 1 < d)
                d = cur[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < d)
                d = up2[j - 2] + 1;
            cur[j] = d;
        }
    }
    return row[n % 3][m];
}

const char *tsr_config_nearest(const char *word, const char *const *names, uint64_t n)
{
    size_t len = strlen(word);
    if (len == 0 || len > WORD_MAX)
        return NULL;
    const char *best = NULL;
    unsigned    limit = len <= 3 ? 1 : 2;
    for (uint64_t i = 0; i < n; i++) {
        size_t m = strlen(names[i]);
        if (m == 0 || m > WORD_MAX || (m > len ? m - len : len - m) > limit)
            continue;
        unsigned d = distance(word, len, names[i], m);
        if (d > limit || d >= (len > m ? len : m)) /* no hint if nothing is in common */
            continue;
        best = names[i];
        limit = d ? d - 1 : 0;
        if (d == 0)
            break;
        if (limit == 0 && d == 1)
            break;
    }
    return best;
}
