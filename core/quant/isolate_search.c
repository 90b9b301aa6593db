/* A block search in a child: scales, clips and transforms come back, all else stays there. */
#include "quant/isolate_internal.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static const struct tsr_quantizer_block_v1 *table_of(const struct tsr_quantizer *q)
{
    return q->iface->extension(q->self, TSR_QUANTIZER_BLOCK);
}

static uint64_t block_need(const void *self)
{
    return ((const struct tsr_quant_isolated *)self)->block_need;
}

/* ---- clip_group --------------------------------------------------------------- */

struct clip_answer {
    struct isolated_head head;
    uint64_t             group;
};

static tsr_status ask_clip(struct tsr_quant_isolated *x, const struct tsr_quantizer *q,
                           struct isolated_head *head, void *arg, struct tsr_err *err)
{
    (void)x;
    (void)err;
    isolated_at(head, ISOLATED_QUESTION, NULL);
    ((struct clip_answer *)(void *)head)->group =
        table_of(q)->clip_group(q->self, *(const uint64_t *)arg);
    return TSR_OK;
}

/* It returns no status: if a child does not answer, search() reports why. */
static uint64_t clip_group(const void *self, uint64_t cols)
{
    struct tsr_quant_isolated *x = (struct tsr_quant_isolated *)(uintptr_t)self;
    uint64_t                   group = 0, i = 0;
    bool                       mine;
    pthread_mutex_lock(&x->lock);
    while (i < x->n_clips && x->clips[i].cols != cols)
        i++;
    struct clip_memo   *v = i < x->n_clips ? NULL : tsr_renew(x->clips, i + 1, sizeof *v);
    struct clip_answer *a = v ? tsr_process_memory(sizeof *a) : NULL;
    if (v)
        x->clips = v;
    if (i == x->n_clips && x->failed == TSR_OK) {
        x->failed = a ? isolated_run(x, ask_clip, &a->head, &cols, false, &mine, &x->why.err)
                      : tsr_fail_nomem(&x->why.err, sizeof *a, "a quantizer's answer");
        if (x->failed == TSR_OK)
            x->clips[x->n_clips++] = (struct clip_memo){ cols, a->group };
    }
    if (i < x->n_clips)
        group = x->clips[i].group;
    tsr_process_release(a, sizeof *a);
    pthread_mutex_unlock(&x->lock);
    return group;
}

/* ---- search --------------------------------------------------------------------- */

struct search {
    struct tsr_quant_isolated      *x;
    const struct tsr_block         *block;
    struct tsr_block_choice *const *choices;
};

struct answer {
    struct isolated_head head;
    unsigned char        v[];
};

/* n bytes of `mine` into v or out of it; NULL: they are counted alone. */
static uint64_t move_bytes(void *mine, uint64_t n, unsigned char *v, bool out)
{
    if (v && n && out)
        memcpy(mine, v, n);
    else if (v && n)
        memcpy(v, mine, n);
    return n;
}

static uint64_t move_site(const struct search *s, uint64_t i, unsigned char *v, bool out)
{
    const struct tsr_block_site *site = s->block->sites[i];
    struct tsr_block_choice     *c = s->choices[i];
    const uint64_t               matrix = site->matrices * site->matrix_cols * site->matrix_cols;
    uint64_t                     at = 0;
#define MOVE(data, count) move_bytes(data, (count) * sizeof *(data), v ? v + at : NULL, out)
    at += MOVE(c->scale, site->cols);
    for (uint64_t k = 0; k < site->n_linears; k++) {
        struct tsr_format f = { .group = clip_group(s->x, site->cols) };
        at += MOVE(c->clip[k], site->linears[k]->rows * tsr_format_groups(&f, site->cols));
    }
    at += MOVE(c->order, c->order ? site->cols : 0);
    at += MOVE(c->matrix, c->matrix ? matrix : 0);
    return at + MOVE(&c->hadamard, 1);
#undef MOVE
}

/* Copies all choices into v or out of it, and gives their bytes. */
static uint64_t move(const struct search *s, unsigned char *v, bool out)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < s->block->n_sites; i++)
        at += move_site(s, i, v ? v + at : NULL, out);
    return at;
}

static tsr_status search_there(struct tsr_quant_isolated *x, const struct tsr_quantizer *q,
                               struct isolated_head *head, void *arg, struct tsr_err *err)
{
    const struct search *s = arg;
    (void)x;
    isolated_at(head, ISOLATED_SEARCH, s->block->name);
    TSR_TRY(table_of(q)->search(q->self, s->block, s->choices, err));
    (void)move(s, ((struct answer *)(void *)head)->v, false);
    return TSR_OK;
}

static tsr_status search(const void *self, const struct tsr_block *block,
                         struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    struct tsr_quant_isolated *x = (struct tsr_quant_isolated *)(uintptr_t)self;
    struct search              s = { .x = x, .block = block, .choices = choices };
    bool                       mine;
    const char                *backend = tsr_plugin_registry_on(x->registry)->backend;
    if (backend && strcmp(backend, TSR_PLUGIN_DEFAULT_BACKEND) != 0 && strcmp(backend, "auto") != 0)
        return tsr_fail(
            err, TSR_E_UNSUPPORTED,
            "an isolated plugin cannot search scales while backend '%s' runs the model; use "
            "backend " TSR_PLUGIN_DEFAULT_BACKEND ", or plugins without isolate",
            backend);
    uint64_t bytes =
        sizeof(struct answer) +
        move(&s, NULL, false); /* all groups are known now: the child queries nothing */
    if (x->failed != TSR_OK)
        return tsr_err_copy(err, x->failed, &x->why.err);
    struct answer *a = tsr_process_memory(bytes);
    if (!a)
        return tsr_fail_nomem(err, bytes, "a block search");
    tsr_status st = isolated_run(x, search_there, &a->head, &s, true, &mine, err);
    if (st == TSR_OK)
        (void)move(&s, a->v, true);
    tsr_process_release(a, bytes);
    return st;
}

void isolated_block(struct tsr_quant_isolated *x)
{
    x->block = (struct tsr_quantizer_block_v1){ .struct_size = sizeof x->block,
                                                .block_need = block_need,
                                                .clip_group = clip_group,
                                                .search = search };
}
