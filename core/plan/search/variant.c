/* Problems with changes: more devices, one candidate, other links and codecs. */
#include "base/mem.h"
#include "plan/search/problem_internal.h"
#include "plan/search/whatif.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_plan_variant_make(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 struct tsr_err *err)
{
    uint64_t n = p->cluster->n_groups;
    *v = (struct tsr_plan_variant){ .p = *p };
    v->p.more_bytes = tsr_new(n, sizeof *v->p.more_bytes);
    v->p.more = tsr_new(n, sizeof *v->p.more);
    if (!v->p.more_bytes || !v->p.more) {
        tsr_plan_variant_free(v);
        return tsr_fail_nomem(err, n * 16, "a planning problem");
    }
    memcpy(v->p.more_bytes, p->more_bytes, n * sizeof *p->more_bytes);
    memcpy(v->p.more, p->more, n * sizeof *p->more);
    return TSR_OK;
}

tsr_status tsr_plan_variant_only(struct tsr_plan_variant *v, const struct tsr_plan_problem *p,
                                 uint64_t c, struct tsr_err *err)
{
    uint64_t layers = p->shape->layers;
    TSR_TRY(tsr_plan_variant_make(v, p, err));
    v->omega = tsr_new(layers, sizeof *v->omega);
    if (!v->omega) {
        tsr_plan_variant_free(v);
        return tsr_fail_nomem(err, layers * sizeof *v->omega, "a planning problem");
    }
    for (uint64_t l = 0; l < layers; l++)
        v->omega[l] = p->quality.omega[l * p->candidates.n + c];
    v->p.quality.omega = v->omega;
    v->p.quality.candidates = 1;
    v->p.quality.kl.half = NULL; /* of all candidates */
    v->p.candidates.v = p->candidates.v + c;
    v->p.candidates.n = 1;
    v->p.max_omega = -1;
    return TSR_OK;
}

void tsr_plan_variant_free(struct tsr_plan_variant *v)
{
    if (v->codecs) {
        tsr_plan_problem_close_codecs(&v->p);
        v->p.shape->lossy_sums = v->lossy_sums;
    }
    if (v->cluster) {
        free(v->cluster->nodes);
        free(v->cluster->between);
        free(v->cluster);
    }
    tsr_plan_quality_free(&v->quality);
    tsr_plan_candidates_close(&v->candidates);
    tsr_plan_candidates_close(&v->ends);
    free(v->p.more_bytes);
    free(v->p.more);
    free(v->omega);
    *v = (struct tsr_plan_variant){ 0 };
}

tsr_status tsr_plan_variant_links(struct tsr_plan_variant *v, bool inside, double times,
                                  struct tsr_err *err)
{
    const struct tsr_plan_cluster *c = v->p.cluster;
    uint64_t                       n = c->n_nodes, ways;
    struct tsr_plan_cluster       *to = tsr_new(1, sizeof *to);
    if (!to)
        return tsr_fail_nomem(err, sizeof *to, "a cluster with other links");
    *to = *c; /* what is not copied is c's */
    to->nodes = tsr_new(n, sizeof *to->nodes);
    to->between = tsr_mul(2 * n, n, &ways) ? tsr_new(ways, sizeof *to->between) : NULL;
    v->cluster = to;
    if (!to->nodes || !to->between)
        return tsr_fail_nomem(err, 2 * n * n * sizeof *to->between, "a cluster with other links");
    memcpy(to->nodes, c->nodes, n * sizeof *to->nodes);
    memcpy(to->between, c->between, ways * sizeof *to->between);
    for (uint64_t i = 0; i < ways; i++)
        if ((i % (n * n) / n == i % n) == inside)
            to->between[i].rate *= times;
    for (uint64_t i = 0; inside && i < n; i++)
        for (int k = 0; k < 2; k++)
            to->nodes[i].link[k].rate *= times;
    v->p.cluster = to;
    return TSR_OK;
}

static void name_of(const struct tsr_plan_codec *c, struct tsr_plan_codec_names *to)
{
    for (int k = 0; k < 2; k++)
        to->phase[k] = c->wire[k].text;
}

tsr_status tsr_plan_variant_codec(struct tsr_plan_variant *v, bool sum, const char *codec,
                                  struct tsr_err *err)
{
    struct tsr_plan_problem *p = &v->p;
    struct tsr_plan_codec   *links = p->links, *sums = p->sums;
    uint64_t                 n_links = p->n_links, n_sums = p->n_sums, more = n_links + n_sums + 1;
    struct tsr_plan_codec_names *names = tsr_new(more, 2 * sizeof *names), *link = names, *of_sums;
    if (!names)
        return tsr_fail_nomem(err, more * sizeof *names, "codecs");
    of_sums = names + more;
    for (uint64_t i = 0; i < n_links; i++)
        name_of(&links[i], &link[i]);
    for (uint64_t i = 0; i < n_sums; i++)
        name_of(&sums[i], &of_sums[i]);
    /* a choice needs a figure of what each costs */
    uint64_t *n = sum ? &n_sums : &n_links;
    *n = p->quality.kl.on ? *n : 0;
    (sum ? of_sums : link)[*n] = (struct tsr_plan_codec_names){ { codec, codec } };
    ++*n;
    v->lossy_sums = p->shape->lossy_sums;
    p->links = p->sums = NULL; /* they are not the variant's to close */
    p->n_links = p->n_sums = 0;
    tsr_status st = tsr_plan_problem_put_codecs(p, link, n_links, of_sums, n_sums, err);
    v->codecs = st == TSR_OK;
    free(names);
    return st;
}
