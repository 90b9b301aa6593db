/* Ranks of a plan. */
#include "runtime/layout.h"

#include "base/log.h"
#include "base/mem.h"
#include "plan/cost/memory.h"
#include "plan/cost/workload.h"

#include <stdlib.h>
#include <string.h>

static tsr_status check(const struct tsr_runtime_layout *l, struct tsr_err *err)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_stages; i++)
        n += l->stages[i].ranks;
    if (n == 0 || l->replicas == 0 || n > TSR_MAX_RANKS / l->replicas)
        return tsr_fail(err, TSR_E_CONFIG, "%u replicas of %llu ranks; a job has 1 to %u ranks",
                        l->replicas, (unsigned long long)n, TSR_MAX_RANKS);
    if (l->slots < l->replicas)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%u requests at once for %u replicas: each needs one at least", l->slots,
                        l->replicas);
    return TSR_OK;
}

static void set_micro_batches(struct tsr_runtime_layout *l, uint64_t prefill, uint64_t decode)
{
    uint32_t each = (l->slots + l->replicas - 1) / l->replicas;
    l->decode_mb = decode && decode < each ? (uint32_t)decode : each;
    l->prefill_mb = prefill && prefill < l->decode_mb ? (uint32_t)prefill : l->decode_mb;
}

/* "" and text that is not a codec stay NULL. False: out of memory. */
static bool keep(char **to, const char *text)
{
    if (!text || !*text || strcmp(text, TSR_WIRE_16) == 0)
        return true;
    *to = tsr_strdup(text);
    return *to != NULL;
}

static tsr_status stage_of(struct tsr_runtime_layout_stage *s, const struct tsr_plan_stage *p,
                           const struct tsr_model_hparams *hp, struct tsr_err *err)
{
    bool there = true;
    if (p->experts == TSR_PLAN_EXPERTS_WHOLE && !hp->experts)
        return tsr_fail(err, TSR_E_INPUT,
                        "the plan: layers %llu-%llu have 'experts: whole', but the model has no "
                        "experts; leave the key out",
                        (unsigned long long)p->first,
                        (unsigned long long)(p->first + p->count - 1));
    for (int k = 0; k < TSR_PLAN_PHASES; k++)
        if (tsr_comm_is_auto(p->send[k].codec) || strcmp(p->send[k].algorithm, "auto") == 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "the plan: layers %llu-%llu are sent on by codec auto; `auto` chooses "
                            "for the sums inside a stage (collective), name the codec of a send",
                            (unsigned long long)p->first,
                            (unsigned long long)(p->first + p->count - 1));
    s->first = p->first;
    s->end = p->first + p->count;
    s->ranks = (uint32_t)p->tp;
    s->whole_experts = p->experts == TSR_PLAN_EXPERTS_WHOLE;
    s->cpu_experts = p->cpu_experts;
    if (strcmp(p->send[0].codec, TSR_WIRE_16) == 0 ||
        (p->tp > 1 && strcmp(p->collective[0].codec, TSR_WIRE_16) == 0))
        tsr_logf(
            TSR_LOG_INFO,
            "the plan has codec f16 between ranks, which an older version wrote for none: numbers "
            "travel as F32, exactly");
    for (int k = 0; k < TSR_PLAN_PHASES && there; k++)
        there = keep(&s->send[k], p->send[k].codec) &&
                keep(&s->collective[k], p->collective[k].codec) &&
                keep(&s->algorithm[k], p->collective[k].algorithm);
    return there ? TSR_OK : tsr_fail_nomem(err, 0, "stages");
}

/* As the planner counts the engine's buffers (plan/cost/memory_work.c): a prefill micro-batch in forwards of the
 * engine's size, a decode one whole. */
static uint64_t forward_tokens(const struct tsr_runtime_layout *l, uint64_t prompt)
{
    uint64_t piece = l->chunk && l->chunk < prompt ? l->chunk : prompt,
             cut = l->chunk ? l->chunk : TSR_PLAN_FORWARD;
    uint64_t n = piece < cut ? l->prefill_mb * piece : cut;
    n = n < cut ? n : cut;
    return n > l->decode_mb ? n : l->decode_mb;
}

/* Requests at once: those of the plan's replicas, where further files have the rest of the batch. */
static uint64_t slots_of(const struct tsr_plan_file *p)
{
    uint64_t once = (uint64_t)(p->load.concurrency ? p->load.concurrency : p->load.batch),
             copies = (uint64_t)p->replicas, share = (uint64_t)p->share,
             batch = (uint64_t)p->load.batch, each, all;
    if (share == 0 || !tsr_mul(once, share, &each) || !tsr_mul(copies, share, &all) || all >= batch)
        return once;
    each = each / batch + (each % batch != 0); /* as the planner divides them (search/share.h) */
    return copies * (each < share ? each : share);
}

tsr_status tsr_runtime_layout_plan(struct tsr_runtime_layout *l, const struct tsr_plan_file *p,
                                   const struct tsr_model_hparams *hp, uint64_t requests,
                                   struct tsr_err *err)
{
    *l = (struct tsr_runtime_layout){ .replicas = (uint32_t)p->replicas };
    if (!p->placed)
        return tsr_fail(err, TSR_E_INPUT,
                        "the plan says how layers are packed but not where they run; make one "
                        "with tessera plan");
    if (p->layers != hp->layers)
        return tsr_fail(err, TSR_E_INPUT, "the plan for %llu layers, the model has %llu",
                        (unsigned long long)p->layers, (unsigned long long)hp->layers);
    uint64_t slots = slots_of(p);
    if (requests && requests < slots)
        slots = requests < l->replicas ? l->replicas : requests;
    l->slots = (uint32_t)slots;
    l->head_first = p->head == TSR_PLAN_HEAD_FIRST;
    l->chunk = (uint64_t)p->load.chunk;
    l->n_stages = (uint32_t)p->n_stages;
    l->stages = tsr_new(p->n_stages, sizeof *l->stages);
    tsr_status st = l->stages ? TSR_OK : tsr_fail_nomem(err, p->n_stages, "stages");
    l->cpu_experts = tsr_new(p->layers, 1);
    if (st == TSR_OK && !l->cpu_experts)
        st = tsr_fail_nomem(err, p->layers, "stages");
    if (st == TSR_OK)
        memcpy(l->cpu_experts, p->cpu_experts, p->layers);
    for (uint64_t i = 0; i < p->n_stages && st == TSR_OK; i++)
        st = stage_of(&l->stages[i], &p->stages[i], hp, err);
    if (st == TSR_OK)
        st = check(l, err);
    if (st != TSR_OK)
        tsr_runtime_layout_free(l);
    else
        set_micro_batches(l, (uint64_t)p->prefill_mb, (uint64_t)p->decode_mb);
    if (st == TSR_OK)
        l->forward = forward_tokens(l, (uint64_t)p->load.prompt);
    return st;
}

const char *tsr_runtime_layout_backend(const struct tsr_runtime_layout *l, uint32_t rank)
{
    return l->backends ? l->backends[rank] : NULL;
}

void tsr_runtime_layout_free(struct tsr_runtime_layout *l)
{
    for (uint32_t i = 0; l->backends && i < tsr_runtime_layout_ranks(l); i++)
        free(l->backends[i]);
    free(l->backends);
    for (uint32_t i = 0; l->stages && i < l->n_stages; i++) {
        struct tsr_runtime_layout_stage *s = &l->stages[i];
        for (int k = 0; k < TSR_PLAN_PHASES; k++) {
            free(s->send[k]);
            free(s->collective[k]);
            free(s->algorithm[k]);
        }
        free(s->send_over);
        free(s->collective_over);
    }
    free(l->stages);
    free(l->cpu_experts);
    *l = (struct tsr_runtime_layout){ 0 };
}

bool tsr_runtime_layout_open(const struct tsr_runtime_layout *l, uint32_t stage, int phase)
{
    const struct tsr_runtime_layout_stage *s = &l->stages[stage];
    const char                            *a = s->algorithm[phase];
    return s->ranks > 1 &&
           (tsr_comm_is_auto(s->collective[phase]) || (a && strcmp(a, "auto") == 0));
}

tsr_status tsr_runtime_layout_fix(struct tsr_runtime_layout *l, uint32_t stage, int phase,
                                  const char *codec, const char *algorithm, struct tsr_err *err)
{
    struct tsr_runtime_layout_stage *s = &l->stages[stage];
    char                            *c = tsr_strdup(codec), *a = tsr_strdup(algorithm);
    if (!c || !a) {
        free(c);
        free(a);
        return tsr_fail_nomem(err, strlen(codec), "a codec's name");
    }
    free(s->collective[phase]);
    free(s->algorithm[phase]);
    s->collective[phase] = c;
    s->algorithm[phase] = a;
    return TSR_OK;
}

static uint32_t per_replica(const struct tsr_runtime_layout *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_stages; i++)
        n += l->stages[i].ranks;
    return n;
}

uint32_t tsr_runtime_layout_ranks(const struct tsr_runtime_layout *l)
{
    return l->replicas * per_replica(l);
}

struct tsr_runtime_place tsr_runtime_layout_place(const struct tsr_runtime_layout *l, uint32_t rank)
{
    uint32_t                 each = per_replica(l);
    struct tsr_runtime_place p = { .rank = rank, .replica = rank / each, .tp = rank % each };
    while (p.tp >= l->stages[p.stage].ranks)
        p.tp -= l->stages[p.stage++].ranks;
    p.first = l->stages[p.stage].first;
    p.end = l->stages[p.stage].end;
    p.embed = p.stage == 0 && p.tp == 0;
    p.last = p.stage + 1 == l->n_stages && p.tp == 0;
    p.head = l->head_first ? p.embed : p.last;
    p.back = p.head && !p.last;
    return p;
}

uint32_t tsr_runtime_layout_rank(const struct tsr_runtime_layout *l, uint32_t replica,
                                 uint32_t stage, uint32_t tp)
{
    uint32_t n = replica * per_replica(l) + tp;
    for (uint32_t i = 0; i < stage; i++)
        n += l->stages[i].ranks;
    return n;
}

/* Micro-batches of one replica. */
static uint32_t slot_sets_each(const struct tsr_runtime_layout *l)
{
    uint32_t each = (l->slots + l->replicas - 1) / l->replicas;
    return (each + l->decode_mb - 1) / l->decode_mb;
}

uint32_t tsr_runtime_layout_slot_sets(const struct tsr_runtime_layout *l)
{
    uint32_t n = slot_sets_each(l) * l->replicas;
    return n < l->slots ? n : l->slots;
}

uint32_t tsr_runtime_layout_engine_slots(const struct tsr_runtime_layout *l)
{
    return (l->slots + l->replicas - 1) / l->replicas;
}
