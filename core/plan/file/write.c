#include "plan/file/write.h"

#include "base/output.h"
#include "plan/file/plan_file.h"
#include "plan/file/write_schemes.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A quoted YAML string: user-chosen names of nodes and files. */
static void put_text(struct tsr_writer *w, const char *s)
{
    char   buf[1200];
    size_t at = 0;
    size_t n = strlen(s);
    buf[0] = '\0';
    if (tsr_plan_write_value(buf, sizeof buf, &at, s, n < 500 ? n : 500))
        tsr_writer_put(w, buf, at);
}

static void put_real(struct tsr_writer *w, const char *key, double v, bool first)
{
    if (isfinite(v))
        tsr_writer_printf(w, "%s%s: %.9g", first ? "" : ", ", key, v);
}

static void put_copies(struct tsr_writer *w, const struct tsr_plan_copies *c)
{
    tsr_writer_printf(w, "replicas: %llu\nshare: %llu\n%s", (unsigned long long)c->copies,
                      (unsigned long long)c->share, c->nodes ? "replica_nodes:\n" : "");
    for (uint64_t i = 0; c->nodes && i < c->copies; i++) {
        tsr_writer_printf(w, "  - [");
        for (uint64_t n = 0; n < c->n_nodes; n++) {
            tsr_writer_printf(w, "%s", n ? ", " : "");
            put_text(w, c->whole->cluster->nodes[c->nodes[i * c->n_nodes + n]].name);
        }
        tsr_writer_printf(w, "]\n");
    }
}

static tsr_status put_head(struct tsr_writer *w, const struct tsr_plan_problem *p,
                           const struct tsr_plan_planned *a, const struct tsr_plan_copies *c,
                           struct tsr_err *err)
{
    const struct tsr_plan_problem  *whole = c ? c->whole : p;
    const struct tsr_plan_workload *k = &whole->work;
    char                           *kv = tsr_plan_outcome_kv_layers(&a->outcome, p->shape);
    if (!kv)
        return tsr_fail_nomem(err, a->outcome.layers, "the caches of a plan");
    tsr_writer_printf(w, "format: " TSR_PLAN_FORMAT "\nheaders: %s\nlayers: %llu\n", p->shape->hash,
                      (unsigned long long)p->shape->layers);
    tsr_writer_printf(w,
                      "workload: {prompt: %llu, generate: %llu, batch: %llu, concurrency: %llu, "
                      "chunk: %llu, kv: %s%s%s%s}\n"
                      "micro_batches: {prefill: %llu, decode: %llu}\n",
                      (unsigned long long)k->s, (unsigned long long)k->n,
                      (unsigned long long)k->batch, (unsigned long long)whole->memory.batch,
                      (unsigned long long)k->chunk,
                      tsr_plugin_kv_name(tsr_plan_outcome_kv(&a->outcome, p->shape)),
                      *kv ? ", kv_layers: \"" : "", kv, *kv ? "\"" : "",
                      (unsigned long long)a->outcome.prefill_mb,
                      (unsigned long long)a->outcome.decode_mb);
    free(kv);
    tsr_writer_printf(w,
                      "master: {tokenize: coordinator, embed: first, head: %s, sample: "
                      "coordinator}\n",
                      tsr_plugin_choice_name(tsr_head_choices, 2, p->o.head));
    if (tsr_plan_problem_packs_ends(p)) {
        char rule[TSR_PLAN_RULE_TEXT];
        if (!tsr_plan_write_rule(&p->ends.v[p->end], rule, sizeof rule))
            return tsr_fail(err, TSR_E_INPUT, "the options of 'ends' are too long for a plan file");
        tsr_writer_printf(
            w, "ends:\n  - {tensors: lm_head, %s}\n  - {tensors: model.embed_tokens, %s}\n", rule,
            rule);
    }
    if (c)
        put_copies(w, c);
    tsr_writer_printf(w, "quality: {source: ");
    put_text(w, p->quality.prior ? "prior" : p->o.indicators);
    if (!p->quality.prior) {
        /* "variance of indicators.json" */
        const char *of = strstr(p->quality.basis, " of ");
        tsr_writer_printf(w, ", table: %.*s, hash: %s",
                          of ? (int)(of - p->quality.basis) : (int)strlen(p->quality.basis),
                          p->quality.basis, p->quality.hash);
    }
    tsr_writer_printf(w, "}\nobjective: %s\naccounting: %s\n",
                      tsr_plugin_choice_name(tsr_objective_choices, 2, p->o.objective),
                      tsr_plugin_choice_name(tsr_accounting_choices, 2, p->o.accounting));
    return TSR_OK;
}

/* "0-3,7": layers of the stage whose experts are on the CPU; true: all. */
static void put_cpu_experts(struct tsr_writer *w, const struct tsr_plan_outcome *o,
                            const struct tsr_plan_outcome_stage *s)
{
    char text[TSR_PLAN_RANGES];
    if (tsr_plan_outcome_on_cpu(o, s, text) == 0)
        return;
    tsr_writer_printf(w, "    cpu_experts: ");
    put_text(w, text);
    tsr_writer_printf(w, "\n");
}

/* k of the stage's layers: one entry for each of its values. */
static void put_compensation(struct tsr_writer *w, const struct tsr_plan_outcome *o,
                             const struct tsr_plan_outcome_stage *s)
{
    uint64_t end = s->first + s->count, entries = 0;
    for (uint64_t first = s->first; first < end; first++) {
        uint64_t runs = 0;
        bool     before = o->k[first] == 0;
        for (uint64_t l = s->first; l < first; l++)
            before = before || o->k[l] == o->k[first];
        for (uint64_t l = first, n; !before && l < end; l += n) {
            for (n = 1; l + n < end && o->k[l + n] == o->k[l]; n++)
                ;
            if (o->k[l] != o->k[first])
                continue;
            if (!entries++)
                tsr_writer_printf(w, "    compensation:\n");
            tsr_writer_printf(w, "%s%llu", runs++ ? "," : "      - {layers: \"",
                              (unsigned long long)l);
            if (n > 1)
                tsr_writer_printf(w, "-%llu", (unsigned long long)(l + n - 1));
        }
        if (runs)
            tsr_writer_printf(w, "\", k: %u}\n", o->k[first]);
    }
}

/* wires: by phase, as the plan is priced. */
static void put_way(struct tsr_writer *w, const char *what, const struct tsr_plan_wire wires[2],
                    const char *pre, const char *dec)
{
    tsr_writer_printf(w, "    %s:\n      prefill: {codec: ", what);
    put_text(w, wires[0].text ? wires[0].text : "plain");
    tsr_writer_printf(w, ", algorithm: %s}\n      decode: {codec: ", pre);
    put_text(w, wires[1].text ? wires[1].text : "plain");
    tsr_writer_printf(w, ", algorithm: %s}\n", dec);
}

/* The faster of the two collectives at the plan's sizes, as the times have it. */
static tsr_status algorithm(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                            const struct tsr_plan_outcome_stage *s, enum tsr_phase phase,
                            const char **name, struct tsr_err *err)
{
    double   ms;
    bool     two_step;
    uint64_t rows = phase == TSR_PLAN_PREFILL ? o->prefill_mb * p->work.s : o->decode_mb;
    TSR_TRY(tsr_plan_latency_collective(&s->mesh, phase, &p->sums[s->sum].wire[phase], rows,
                                        p->shape->hidden, &ms, &two_step, err));
    *name = two_step ? "two-step" : "all-gather";
    return TSR_OK;
}

static tsr_status put_stage(struct tsr_writer *w, const struct tsr_plan_problem *p,
                            const struct tsr_plan_outcome *o, uint64_t i, struct tsr_err *err)
{
    const struct tsr_plan_outcome_stage *s = &o->stages[i];
    const struct tsr_plan_stage_memory  *m = &s->memory;
    tsr_writer_printf(w, "  - layers: %llu", (unsigned long long)s->first);
    if (s->count > 1)
        tsr_writer_printf(w, "-%llu", (unsigned long long)(s->first + s->count - 1));
    tsr_writer_printf(w, "\n    node: ");
    put_text(w, p->cluster->nodes[s->mesh.node].name);
    tsr_writer_printf(w, "\n    device: ");
    put_text(w, s->mesh.profile->name);
    tsr_writer_printf(w, "\n    tp: %u\n", s->mesh.tp);
    if (s->mesh.whole_experts)
        tsr_writer_printf(w, "    experts: whole\n");
    put_cpu_experts(w, o, s);
    if (!tsr_plan_write_schemes(w, p, o, s))
        return tsr_fail(err, TSR_E_INPUT, "a candidate's options are too long for a plan file");
    put_compensation(w, o, s);
    if (i + 1 < o->n_stages)
        put_way(w, "send", p->links[s->link].wire, "send", "send");
    else if (i > 0 && p->o.head == TSR_PLAN_HEAD_FIRST) /* back to the head */
        put_way(w, "send", p->back, "send", "send");
    if (s->mesh.tp > 1) {
        const char *pre, *dec;
        TSR_TRY(algorithm(p, o, s, TSR_PLAN_PREFILL, &pre, err));
        TSR_TRY(algorithm(p, o, s, TSR_PLAN_DECODE, &dec, err));
        put_way(w, "collective", p->sums[s->sum].wire, pre, dec);
    }
    tsr_writer_printf(w,
                      "    predicted: {weights: %llu, kv: %llu, ends: %llu, workspace: %llu,\n"
                      "      capacity: %llu",
                      (unsigned long long)m->weights, (unsigned long long)m->kv,
                      (unsigned long long)m->ends, (unsigned long long)m->workspace,
                      (unsigned long long)m->capacity);
    if (s->compensation.bytes)
        tsr_writer_printf(w, ", residuals: %llu", (unsigned long long)s->compensation.bytes);
    if (m->host)
        tsr_writer_printf(w, ", host: %llu, host_capacity: %llu", (unsigned long long)m->host,
                          (unsigned long long)m->host_capacity);
    put_real(w, "prefill_ms", s->pre_ms, false);
    put_real(w, "decode_ms", s->dec_ms, false);
    put_real(w, "busy", s->busy, false);
    tsr_writer_printf(w, "}\n");
    return TSR_OK;
}

static void put_totals(struct tsr_writer *w, const struct tsr_plan_planned *a)
{
    const struct tsr_plan_outcome *o = &a->outcome;
    tsr_writer_printf(w, "predicted: {");
    put_real(w, "latency_ms", o->latency_ms, true);
    put_real(w, "ttft_ms", o->prefill_ms, false);
    put_real(w, "tokens_per_second", o->tokens_per_second, false);
    put_real(w, "omega", o->omega, false);
    if (isfinite(o->kl)) {
        const struct tsr_plan_quality_parts *part = &o->parts;
        tsr_writer_printf(w, ",\n  kl: %.9g", o->kl);
        if (isfinite(o->kl_half))
            tsr_writer_printf(w, ", kl_interval: [%.9g, %.9g]", fmax(o->kl - o->kl_half, 0),
                              o->kl + o->kl_half);
        tsr_writer_printf(w, ",\n  parts: {weights: %.9g, kv: %.9g, links: %.9g, sums: %.9g",
                          part->weights, part->kv, part->links, part->sums);
        if (part->compensation < 0)
            tsr_writer_printf(w, ", compensation: %.9g", part->compensation);
        if (part->ends > 0)
            tsr_writer_printf(w, ", ends: %.9g", part->ends);
        tsr_writer_printf(w, "}");
    }
    tsr_writer_printf(w, ",\n  objective_ms: %.9g", o->objective_ms);
    put_real(w, "bound_ms", a->bound > 0 ? a->bound : (double)NAN, false);
    tsr_writer_printf(w, ", proved: %s", a->status == TSR_SOLVED_OPTIMAL ? "true" : "false");
    if (*a->solver) {
        tsr_writer_printf(w, ",\n  solver: ");
        put_text(w, a->solver);
        put_real(w, "seconds", a->seconds, false);
    }
    tsr_writer_printf(w, "}\n");
}

tsr_status tsr_plan_write(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a,
                          const struct tsr_plan_copies *c, const char *path, struct tsr_err *err)
{
    struct tsr_writer w;
    TSR_TRY(tsr_writer_open(&w, path, err));
    tsr_writer_printf(&w, "# Plan of %s on %s; edit it and let tessera plan JOB --check see it.\n",
                      p->shape->name, p->cluster->name);
    tsr_status st = put_head(&w, p, a, c, err);
    tsr_writer_printf(&w, "stages:\n");
    for (uint64_t i = 0; i < a->outcome.n_stages && st == TSR_OK; i++)
        st = put_stage(&w, p, &a->outcome, i, err);
    put_totals(&w, a);
    if (st != TSR_OK) {
        tsr_writer_abort(&w);
        return st;
    }
    return tsr_writer_commit(&w, err);
}
