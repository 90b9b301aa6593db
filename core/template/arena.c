/* Memory, limits and errors of a compilation or a rendering. */
#include "template/internal.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (UINT64_C(64) << 10)

struct tpl_block {
    struct tpl_block *before;
    uint64_t          n, cap;
    _Alignas(16) char bytes[];
};

static void *no_room(struct tpl_ctx *c, uint64_t bytes)
{
    c->status = bytes > TPL_MAX_MEMORY || c->arena->used > TPL_MAX_MEMORY - bytes
                    ? tpl_fail(c, "the template needs more than %llu MiB of memory",
                               (unsigned long long)(TPL_MAX_MEMORY >> 20))
                    : tsr_fail_nomem(c->err, bytes, "a chat template");
    return NULL;
}

void *tpl_new(struct tpl_ctx *c, uint64_t n, uint64_t size)
{
    struct tpl_arena *a = c->arena;
    uint64_t          bytes;
    if (!tsr_mul(n, size, &bytes) || bytes > TPL_MAX_MEMORY)
        return no_room(c, UINT64_MAX);
    bytes = (bytes + 15) & ~UINT64_C(15);
    if (!a->last || a->last->cap - a->last->n < bytes) {
        uint64_t cap = bytes > BLOCK / 4 ? bytes : BLOCK;
        if (cap > TPL_MAX_MEMORY - a->used)
            return no_room(c, cap);
        struct tpl_block *b = malloc(sizeof *b + cap);
        if (!b)
            return no_room(c, cap);
        *b = (struct tpl_block){ .before = a->last, .cap = cap };
        a->used += cap;
        a->last = b;
    }
    void *p = a->last->bytes + a->last->n;
    a->last->n += bytes;
    memset(p, 0, bytes);
    return p;
}

void *tpl_grow(struct tpl_ctx *c, void *p, uint64_t old, uint64_t n, uint64_t size)
{
    void *v = tpl_new(c, n, size);
    if (v && old)
        memcpy(v, p, old * size);
    return v;
}

void tpl_arena_free(struct tpl_arena *a)
{
    while (a->last) {
        struct tpl_block *b = a->last;
        a->last = b->before;
        free(b);
    }
    a->used = 0;
}

void tpl_say(struct tpl_ctx *c, const char *fmt, ...)
{
    char    text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)tsr_fail(c->err, TSR_E_INPUT, "%s:%u:%u: %s", c->name, c->line, c->column, text);
}

tsr_status tpl_charge(struct tpl_ctx *c, uint64_t bytes)
{
    c->steps += 1 + bytes / 64;
    return c->steps <= TPL_MAX_STEPS
               ? TSR_OK
               : tpl_fail(c, "the template takes more than %d steps", TPL_MAX_STEPS);
}

tsr_status tpl_enter(struct tpl_ctx *c)
{
    c->depth++;
    if (c->depth <= TPL_MAX_DEPTH)
        return TSR_OK;
    c->depth--;
    return tpl_fail(c, "more than %d levels of nesting", TPL_MAX_DEPTH);
}
