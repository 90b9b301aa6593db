/* The codecs that links between stages, and sums inside of one, may have. */
#include "plan/search/problem_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The papers count FP16 between devices; Tessera sends F32, and `exact` prices that. */
#define PAPER_ELEMENT 2u

static tsr_status open_one(const struct tsr_plan_problem *p, bool sum, struct tsr_plan_codec *c,
                           const struct tsr_plan_codec_names *names, struct tsr_err *err)
{
    for (int k = 0; k < 2; k++) {
        struct tsr_plan_wire *w = &c->wire[k];
        TSR_TRY(tsr_plan_wire_open(w, p->registry, names->phase[k], err));
        c->lossy = c->lossy || (w->iface && w->iface->exactness(w->self) != TSR_CODEC_EXACT);
        if (p->o.accounting == TSR_PLAN_ACCOUNT_PAPER)
            w->element = PAPER_ELEMENT;
    }
    return p->quality.kl.on ? tsr_plan_problem_kl_codec(p, sum, c, err) : TSR_OK;
}

static void close_list(struct tsr_plan_codec *list, uint64_t n)
{
    for (uint64_t i = 0; list && i < n; i++)
        for (int k = 0; k < 2; k++)
            tsr_plan_wire_close(&list[i].wire[k]);
    free(list);
}

static tsr_status open_list(const struct tsr_plan_problem *p, bool sum,
                            const struct tsr_plan_codec_names *names, uint64_t n,
                            struct tsr_plan_codec **list, uint64_t *least, struct tsr_err *err)
{
    struct tsr_plan_codec *v = tsr_new(n, sizeof *v);
    tsr_status             st = v ? TSR_OK : tsr_fail_nomem(err, n * sizeof *v, "codecs");
    *least = 0;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        st = open_one(p, sum, &v[i], &names[i], err);
        if (v[i].cost.kl < v[*least].cost.kl)
            *least = i;
    }
    if (st != TSR_OK) {
        close_list(v, n);
        return st;
    }
    *list = v;
    return TSR_OK;
}

void tsr_plan_problem_close_codecs(struct tsr_plan_problem *p)
{
    close_list(p->links, p->n_links);
    close_list(p->sums, p->n_sums);
    p->links = p->sums = NULL;
    p->n_links = p->n_sums = 0;
}

tsr_status tsr_plan_problem_put_codecs(struct tsr_plan_problem           *p,
                                       const struct tsr_plan_codec_names *links, uint64_t n_links,
                                       const struct tsr_plan_codec_names *sums, uint64_t n_sums,
                                       struct tsr_err *err)
{
    struct tsr_plan_codec *link = NULL, *sum = NULL;
    TSR_TRY(open_list(p, false, links, n_links, &link, &p->least_link, err));
    tsr_status st = open_list(p, true, sums, n_sums, &sum, &p->least_sum, err);
    if (st != TSR_OK) {
        close_list(link, n_links);
        return st;
    }
    tsr_plan_problem_close_codecs(p);
    p->links = link;
    p->sums = sum;
    p->n_links = n_links;
    p->n_sums = n_sums;
    for (int k = 0; k < 2; k++) /* of meshes that are not of a plan; a build has each kind's own */
        p->latency.tp_wire[k] = &sum[p->least_sum].wire[k];
    p->shape->lossy_sums = true; /* a list with an exact one can be used with it */
    for (uint64_t i = 0; i < n_sums; i++)
        p->shape->lossy_sums = p->shape->lossy_sums && sum[i].lossy;
    return TSR_OK;
}

uint64_t tsr_plan_codec_find(const struct tsr_plan_codec *list, uint64_t n,
                             const struct tsr_plan_codec_names *names)
{
    uint64_t i = 0;
    for (; i < n; i++) {
        bool same = true;
        for (int k = 0; k < 2; k++) {
            const char *want = names->phase[k] ? names->phase[k] : "";
            const char *has = list[i].wire[k].text ? list[i].wire[k].text : "";
            same = same && strcmp(want, has) == 0;
        }
        if (same)
            break;
    }
    return i;
}

/* A choice that costs nothing would always be taken: of several, a lossy one needs a figure. */
static tsr_status check_list(const struct tsr_plan_problem *p, const char *key,
                             const struct tsr_plan_codec *list, uint64_t n, struct tsr_err *err)
{
    for (uint64_t i = 0; i < n && n > 1 && !p->quality.kl.on; i++)
        if (list[i].lossy)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: '%s' is lossy, and nothing says what it costs in quality; give "
                            "quality: {indicators: FILE} of tessera indicators --measure kl with "
                            "this codec, or list it alone",
                            key, list[i].wire[0].text);
    return TSR_OK;
}

/* The list of an option, or the one name in its place. */
static struct tsr_plan_codec_names *names_of(const char *const *list, uint64_t n, const char *one)
{
    struct tsr_plan_codec_names *v = tsr_new(n ? n : 1, sizeof *v);
    for (uint64_t i = 0; v && i < (n ? n : 1); i++)
        v[i].phase[0] = v[i].phase[1] = n ? list[i] : one;
    return v;
}

tsr_status tsr_plan_problem_open_codecs(struct tsr_plan_problem *p, struct tsr_err *err)
{
    const struct tsr_plan_problem_options *o = &p->o;
    struct tsr_plan_codec_names           *links = names_of(o->links, o->n_links, o->codec);
    struct tsr_plan_codec_names           *sums = names_of(o->sums, o->n_sums, o->tp_codec);
    tsr_status                             st = links && sums
                                                    ? tsr_plan_problem_put_codecs(p, links, o->n_links ? o->n_links : 1, sums,
                                                      o->n_sums ? o->n_sums : 1, err)
                                                    : tsr_fail_nomem(err, 64, "codecs");
    free(links);
    free(sums);
    if (st == TSR_OK)
        st = check_list(p, "codecs", p->links, p->n_links, err);
    if (st == TSR_OK)
        st = check_list(p, "sums", p->sums, p->n_sums, err);
    return st;
}
