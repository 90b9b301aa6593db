#include "frames.h"

#include "standin.h"

#include <stdlib.h>
#include <string.h>

struct frame {
    uint8_t *p;
    uint64_t bytes;
};

static struct frames now;

static void see(const void *message, uint64_t bytes)
{
    struct frame *all = realloc(now.all, (now.n + 1) * sizeof *all);
    uint8_t      *p = malloc(bytes);
    if (!all || !p)
        abort();
    memcpy(p, message, bytes);
    now.all = all;
    now.all[now.n++] = (struct frame){ p, bytes };
    now.bytes += bytes;
}

void frames_begin(void)
{
    now = (struct frames){ .n = 0 };
    standin_tap(see);
}

static int by_bytes(const void *a, const void *b)
{
    const struct frame *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : memcmp(x->p, y->p, x->bytes);
}

void frames_end(struct frames *f)
{
    standin_tap(NULL);
    if (now.n)
        qsort(now.all, now.n, sizeof *now.all, by_bytes);
    *f = now;
    now = (struct frames){ .n = 0 };
}

void frames_free(struct frames *f)
{
    for (uint64_t i = 0; i < f->n; i++)
        free(f->all[i].p);
    free(f->all);
}

int frames_equal(const struct frames *a, const struct frames *b)
{
    int same = a->n == b->n;
    for (uint64_t i = 0; same && i < a->n; i++)
        same = by_bytes(&a->all[i], &b->all[i]) == 0;
    return same;
}
