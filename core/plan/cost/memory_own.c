/* Bytes of a whole stage, against what its mesh offers, without draft models. */
#include "base/mem.h"
#include "plan/cost/memory_internal.h"
#include "plan/cost/memory_paper.h"
#include "plugin/kv_sizes.h"

uint64_t tsr_plan_memory_capacity(const struct tsr_plan_mesh *m, enum tsr_accounting a)
{
    const struct tsr_plan_profile *p = m->profile;
    uint64_t                       one, all;
    if (a == TSR_PLAN_ACCOUNT_PAPER) {
        one = tsr_plan_paper_capacity(p);
    } else {
        one = (uint64_t)(p->usable * (double)p->memory_bytes);
        one = one > p->reserved_bytes ? one - p->reserved_bytes : 0;
    }
    return tsr_mul(one, m->tp, &all) ? all : UINT64_MAX;
}

bool tsr_plan_memory_uneven(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                            uint64_t ends, uint64_t lead, uint64_t *bytes)
{
    *bytes = 0;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER)
        return true;
    return tsr_add(ends, lead, bytes) && tsr_mul(*bytes, m->tp - 1, bytes);
}

/* ---- stages ------------------------------------------------------------------------ */

tsr_status tsr_plan_memory_own_ends(const struct tsr_plan_memory_job *j,
                                    const struct tsr_plan_mesh *m, uint64_t *embed, uint64_t *head,
                                    uint64_t *shared, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    uint64_t                     n, none;
    *embed = *head = *shared = 0;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER) {
        *embed = tsr_plan_paper_ends(j);
        return TSR_OK;
    }
    const struct {
        const struct tsr_plan_shape_matrix *m;
        const struct tsr_plan_candidate    *c;
        uint64_t                           *to;
    } parts[] = { { &s->embed, j->embed, embed },
                  { &s->positions, NULL, embed },
                  { &s->project_in, NULL, embed },
                  { &s->head, j->head, head },
                  { &s->project_out, NULL, head } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        TSR_TRY(tsr_plan_memory_matrix(j, m, parts[i].c, parts[i].m, 0, &n, &none, err));
        if (i == 0 && s->tied && !(j->head && j->head->q.self))
            *shared = n;
        if (!tsr_add(*parts[i].to, n, parts[i].to))
            return tsr_plan_memory_too_large(err);
    }
    return tsr_plan_memory_add(embed, s->embed_norm, 4) &&
                   tsr_plan_memory_add(head, s->final_norm, 4)
               ? TSR_OK
               : tsr_plan_memory_too_large(err);
}

tsr_status tsr_plan_memory_own_stage(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh       *m,
                                     const struct tsr_plan_candidates *c, const uint32_t *bits,
                                     const uint8_t *cpu_experts, uint64_t first, uint64_t n,
                                     uint64_t prefill_mb, uint64_t decode_mb, uint64_t draft,
                                     struct tsr_plan_stage_memory *out, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    bool                         begins = first == 0;
    bool                         ends =
        j->place == TSR_PLAN_HEAD_FIRST ? begins : first + n == s->layers; /* has the head */
    uint64_t                   embed, head, shared, lead, used = 0, alone;
    struct tsr_plan_mesh       of = *m;
    struct tsr_plan_memory_job job = *j; /* of a layer */
    for (uint64_t l = 0; j->kv_of && l < s->layers;
         l++) /* the engine of a stage counts all layers */
        job.blocks = job.blocks || tsr_plugin_kv_has_blocks(j->kv_of[l]);
    *out = (struct tsr_plan_stage_memory){ .capacity = tsr_plan_memory_capacity(m, j->accounting) };
    for (uint64_t l = first; l < first + n; l++) {
        uint64_t w, kv, host = 0;
        used |= UINT64_C(1) << bits[l];
        of.cpu_experts = cpu_experts && cpu_experts[l];
        job.kv = j->kv_of ? j->kv_of[l] : j->kv;
        TSR_TRY(tsr_plan_memory_layer(&job, &of, s->layer_class[l], &c->v[bits[l]], &w, &kv, err));
        if (of.cpu_experts)
            TSR_TRY(tsr_plan_memory_experts(j, &of, s->layer_class[l], &c->v[bits[l]], &host, err));
        if (!tsr_add(out->weights, w, &out->weights) || !tsr_add(out->kv, kv, &out->kv) ||
            !tsr_add(out->host, host, &out->host))
            return tsr_plan_memory_too_large(err);
    }
    TSR_TRY(tsr_plan_memory_own_ends(j, m, &embed, &head, &shared, err));
    out->draft = draft;
    out->ends = (begins ? embed : 0) + (ends ? head : 0) - (begins && ends ? shared : 0);
    job.kv = j->kv;
    TSR_TRY(tsr_plan_memory_work(&job, m, c, used, prefill_mb, decode_mb, begins, ends,
                                 &out->workspace, &lead, err));
    if (!tsr_add(out->ends, draft, &alone) ||
        !tsr_plan_memory_uneven(j, m, alone, lead, &out->uneven) ||
        !tsr_add(out->weights, out->kv, &out->total) || !tsr_add(out->total, alone, &out->total) ||
        !tsr_add(out->total, out->workspace, &out->total))
        return tsr_plan_memory_too_large(err);
    out->capacity = tsr_capacity_left(out->capacity, out->uneven);
    return TSR_OK;
}
