/* The codecs of a plan file's links and sums, for its price. */
#include "comm/coder.h"
#include "plan/file/check.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* "" for what travels as F32: no codec, `plain`, what older files wrote for none, and `auto`, which is not
 * known before ranks have measured it and is `plain` at worst. */
static const char *named(const char *codec)
{
    bool none = strcmp(codec, "plain") == 0 || strcmp(codec, "f16") == 0 || tsr_comm_is_auto(codec);
    return none ? "" : codec;
}

static struct tsr_plan_codec_names names_of(const struct tsr_plan_way way[TSR_PLAN_PHASES])
{
    return (struct tsr_plan_codec_names){ { named(way[0].codec), named(way[1].codec) } };
}

/* Adds names that are not there yet. */
static void add(struct tsr_plan_codec_names *list, uint64_t *n,
                const struct tsr_plan_codec_names *one)
{
    for (uint64_t i = 0; i < *n; i++)
        if (strcmp(list[i].phase[0], one->phase[0]) == 0 &&
            strcmp(list[i].phase[1], one->phase[1]) == 0)
            return;
    list[(*n)++] = *one;
}

uint64_t tsr_plan_file_link(const struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                            uint64_t stage)
{
    struct tsr_plan_codec_names names = names_of(f->stages[stage].send);
    return tsr_plan_codec_find(p->links, p->n_links, &names);
}

uint64_t tsr_plan_file_sum(const struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                           uint64_t stage)
{
    struct tsr_plan_codec_names names = names_of(f->stages[stage].collective);
    return tsr_plan_codec_find(p->sums, p->n_sums, &names);
}

tsr_status tsr_plan_take_codecs(struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                                struct tsr_err *err)
{
    const struct tsr_plan_codec_names none = { { "", "" } };
    struct tsr_plan_codec_names      *send = tsr_new(f->n_stages, sizeof *send),
                                *sum = tsr_new(f->n_stages, sizeof *sum);
    uint64_t   n_send = 0, n_sum = 0;
    tsr_status st =
        send && sum ? TSR_OK : tsr_fail_nomem(err, f->n_stages * sizeof *send, "codecs");
    for (uint64_t i = 0; st == TSR_OK && i < f->n_stages; i++) {
        const struct tsr_plan_stage *s = &f->stages[i];
        struct tsr_plan_codec_names  link = names_of(s->send), inside = names_of(s->collective);
        if (i + 1 < f->n_stages)
            add(send, &n_send, &link);
        if (s->tp > 1)
            add(sum, &n_sum, &inside);
    }
    if (st == TSR_OK && !n_send)
        add(send, &n_send, &none);
    if (st == TSR_OK && !n_sum)
        add(sum, &n_sum, &none);
    if (st == TSR_OK)
        st = tsr_plan_problem_put_codecs(p, send, n_send, sum, n_sum, err);
    free(send);
    free(sum);
    TSR_TRY(st);
    for (int k = 0; k < TSR_PLAN_PHASES && f->head == TSR_PLAN_HEAD_FIRST && f->n_stages > 1; k++) {
        tsr_plan_wire_close(&p->back[k]);
        TSR_TRY(tsr_plan_wire_open(&p->back[k], p->registry,
                                   named(f->stages[f->n_stages - 1].send[k].codec), err));
    }
    return TSR_OK;
}
