#include "plan/file/write.h"

#include "base/output.h"
#include "plan/file/plan_file.h"
#include "plugin/choices.h"

#include <math.h>
#include <string.h>

#define RULE_TEXT 800

static bool plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(s[i] >= '0' && s[i] <= '9') && !(s[i] >= 'a' && s[i] <= 'z') &&
            !(s[i] >= 'A' && s[i] <= 'Z') && !strchr("_.+-", s[i]))
            return false;
    return n > 0;
}

static bool add(char *buf, size_t cap, size_t *at, const char *s, size_t n)
{
    if (n >= cap - *at)
        return false;
    memcpy(buf + *at, s, n);
    *at += n;
    buf[*at] = '\0';
    return true;
}

/* A value as YAML: quoted where it is more than a word or number. */
static bool add_value(char *buf, size_t cap, size_t *at, const char *s, size_t n)
{
    if (plain(s, n))
        return add(buf, cap, at, s, n);
    if (!add(buf, cap, at, "\"", 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((s[i] == '"' || s[i] == '\\') && !add(buf, cap, at, "\\", 1))
            return false;
        if (!add(buf, cap, at, s + i, 1))
            return false;
    }
    return add(buf, cap, at, "\"", 1);
}

/* "use: gptq, bits: 4, group: 128" or "keep: true"; false where it does not fit. */
static bool candidate_rule(const struct tsr_plan_candidate *c, char *buf, size_t cap)
{
    size_t at = 0;
    if (!c->q.self)
        return add(buf, cap, &at, "keep: true", 10);
    bool ok =
        add(buf, cap, &at, "use: ", 5) && add_value(buf, cap, &at, c->scheme, strlen(c->scheme));
    for (const char *s = c->options; ok && *s;) {
        size_t n = strcspn(s, ","), key = strcspn(s, "=");
        if (key < n)
            ok = add(buf, cap, &at, ", ", 2) && add(buf, cap, &at, s, key) &&
                 add(buf, cap, &at, ": ", 2) && add_value(buf, cap, &at, s + key + 1, n - key - 1);
        s += n + (s[n] == ',');
    }
    return ok;
}

/* A quoted YAML string: user-chosen names of nodes and files. */
static void put_text(struct tsr_writer *w, const char *s)
{
    char   buf[1200];
    size_t at = 0;
    size_t n = strlen(s);
    buf[0] = '\0';
    if (add_value(buf, sizeof buf, &at, s, n < 500 ? n : 500))
        tsr_writer_put(w, buf, at);
}

static void put_real(struct tsr_writer *w, const char *key, double v, bool first)
{
    if (isfinite(v))
        tsr_writer_printf(w, "%s%s: %.9g", first ? "" : ", ", key, v);
}

static void put_copies(struct tsr_writer *w, const struct tsr_plan_copies *c)
{
    tsr_writer_printf(w, "replicas: %llu\nshare: %llu\nreplica_nodes:\n",
                      (unsigned long long)c->copies, (unsigned long long)c->share);
    for (uint64_t i = 0; i < c->copies; i++) {
        tsr_writer_printf(w, "  - [");
        for (uint64_t n = 0; n < c->n_nodes; n++) {
            tsr_writer_printf(w, "%s", n ? ", " : "");
            put_text(w, c->whole->cluster->nodes[c->nodes[i * c->n_nodes + n]].name);
        }
        tsr_writer_printf(w, "]\n");
    }
}

static void put_head(struct tsr_writer *w, const struct tsr_plan_problem *p,
                     const struct tsr_plan_planned *a, const struct tsr_plan_copies *c)
{
    const struct tsr_plan_problem  *whole = c ? c->whole : p;
    const struct tsr_plan_workload *k = &whole->work;
    tsr_writer_printf(w, "format: " TSR_PLAN_FORMAT "\nheaders: %s\nlayers: %llu\n", p->shape->hash,
                      (unsigned long long)p->shape->layers);
    tsr_writer_printf(w,
                      "workload: {prompt: %llu, generate: %llu, batch: %llu, concurrency: %llu, "
                      "chunk: %llu, kv: %s}\n"
                      "micro_batches: {prefill: %llu, decode: %llu}\n",
                      (unsigned long long)k->s, (unsigned long long)k->n,
                      (unsigned long long)k->batch, (unsigned long long)whole->memory.batch,
                      (unsigned long long)k->chunk, tsr_plugin_kv_name(k->kv),
                      (unsigned long long)a->outcome.prefill_mb,
                      (unsigned long long)a->outcome.decode_mb);
    tsr_writer_printf(w,
                      "master: {tokenize: coordinator, embed: first, head: %s, sample: "
                      "coordinator}\n",
                      tsr_plugin_choice_name(tsr_head_choices, 2, p->o.head));
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
}

/* "0,3,7-9": the experts of a group. */
static void put_experts(struct tsr_writer *w, const struct tsr_plan_shape *s, uint64_t layer,
                        uint32_t group)
{
    const uint8_t *of = s->group_of + layer * s->experts;
    uint64_t       runs = 0;
    tsr_writer_printf(w, "experts: \"");
    for (uint64_t e = 0, n; e < s->experts; e += n) {
        for (n = 1; e + n < s->experts && of[e + n] == of[e]; n++)
            ;
        if (of[e] != group)
            continue;
        tsr_writer_printf(w, "%s%llu", runs++ ? "," : "", (unsigned long long)e);
        if (n > 1)
            tsr_writer_printf(w, "-%llu", (unsigned long long)(e + n - 1));
    }
    tsr_writer_printf(w, "\", ");
}

/* A line for linears of one layer, of all its experts or of those of a group; id: one of them, or -1 for all. */
static bool put_line(struct tsr_writer *w, const struct tsr_plan_shape *s, uint64_t layer,
                     uint32_t group, int id, const struct tsr_plan_candidate *c)
{
    char rule[RULE_TEXT];
    if (!candidate_rule(c, rule, sizeof rule))
        return false;
    tsr_writer_printf(w, "      - {layers: \"%llu\", ", (unsigned long long)layer);
    if (group)
        put_experts(w, s, layer, group);
    if (id >= 0)
        tsr_writer_printf(w, "tensors: \"*.%s\", ", tsr_model_linear_name((enum tsr_linear_id)id));
    tsr_writer_printf(w, "%s}\n", rule);
    return true;
}

/* A further group of experts: a line, or one for each of gate, up and down. */
static bool put_group(struct tsr_writer *w, const struct tsr_plan_shape *s, uint64_t layer,
                      uint32_t group, const struct tsr_plan_candidate *c)
{
    const struct tsr_plan_candidate *gate = tsr_plan_candidate_part(c, TSR_MODEL_GATE, group);
    const struct tsr_plan_candidate *up = tsr_plan_candidate_part(c, TSR_MODEL_UP, group);
    const struct tsr_plan_candidate *down = tsr_plan_candidate_part(c, TSR_MODEL_DOWN, group);
    if (gate == up && up == down)
        return put_line(w, s, layer, group, -1, gate);
    return put_line(w, s, layer, group, TSR_MODEL_GATE, gate) &&
           put_line(w, s, layer, group, TSR_MODEL_UP, up) &&
           put_line(w, s, layer, group, TSR_MODEL_DOWN, down);
}

/* A layer whose linears differ: a line for each of them, or one for all, and those of further groups of experts. */
static bool put_mixed(struct tsr_writer *w, const struct tsr_plan_problem *p,
                      const struct tsr_plan_outcome *o, const struct tsr_plan_outcome_stage *s,
                      uint32_t c)
{
    const struct tsr_plan_candidate *mix = &p->candidates.v[c];
    bool                             one = true, ok = true;
    for (int i = 0; i < TSR_PLAN_MIXED; i++)
        one = one && mix->of[i] == mix->of[0];
    for (uint64_t l = s->first; l < s->first + s->count; l++) {
        const struct tsr_plan_shape_layer *of = &p->shape->layer[p->shape->layer_class[l]];
        if (o->bits[l] != c)
            continue;
        if (one)
            ok = ok && put_line(w, p->shape, l, 0, -1, mix->of[0]);
        for (int i = 0; i < TSR_PLAN_MIXED && !one; i++)
            ok = ok && (of->lin[tsr_plan_mixed(i)].rows == 0 ||
                        put_line(w, p->shape, l, 0, (int)tsr_plan_mixed(i), mix->of[i]));
        for (uint32_t g = 1; g < tsr_plan_shape_groups(p->shape) && of->router.rows; g++)
            ok = ok && (of->group[g] == 0 || put_group(w, p->shape, l, g, mix));
    }
    return ok;
}

/* Rules for the stage's layers: a line for each candidate that it uses. */
static bool put_schemes(struct tsr_writer *w, const struct tsr_plan_problem *p,
                        const struct tsr_plan_outcome *o, const struct tsr_plan_outcome_stage *s)
{
    tsr_writer_printf(w, "    schemes:\n");
    for (uint64_t c = 0; c < p->candidates.n; c++) {
        uint64_t end = s->first + s->count, runs = 0;
        char     rule[RULE_TEXT];
        bool     mixed = p->candidates.v[c].mixed;
        for (uint64_t l = s->first, n; l < end; l += n) {
            for (n = 1; l + n < end && o->bits[l + n] == o->bits[l]; n++)
                ;
            if (o->bits[l] != c)
                continue;
            if (mixed) {
                runs++;
                continue;
            }
            tsr_writer_printf(w, "%s%llu", runs++ ? "," : "      - {layers: \"",
                              (unsigned long long)l);
            if (n > 1)
                tsr_writer_printf(w, "-%llu", (unsigned long long)(l + n - 1));
        }
        if (!runs)
            continue;
        if (p->candidates.v[c].mixed) {
            if (!put_mixed(w, p, o, s, (uint32_t)c))
                return false;
            continue;
        }
        if (!candidate_rule(&p->candidates.v[c], rule, sizeof rule))
            return false;
        tsr_writer_printf(w, "\", %s}\n", rule);
    }
    return true;
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
                            const struct tsr_plan_mesh *m, enum tsr_phase phase, const char **name,
                            struct tsr_err *err)
{
    double   ms;
    bool     two_step;
    uint64_t rows = phase == TSR_PLAN_PREFILL ? o->prefill_mb * p->work.s : o->decode_mb;
    TSR_TRY(tsr_plan_latency_collective(m, phase, &p->tp_wire[phase], rows, p->shape->hidden, &ms,
                                        &two_step, err));
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
    if (!put_schemes(w, p, o, s))
        return tsr_fail(err, TSR_E_INPUT, "a candidate's options are too long for a plan file");
    if (i + 1 < o->n_stages)
        put_way(w, "send", p->wire, "send", "send");
    else if (i > 0 && p->o.head == TSR_PLAN_HEAD_FIRST) /* back to the head */
        put_way(w, "send", p->back, "send", "send");
    if (s->mesh.tp > 1) {
        const char *pre, *dec;
        TSR_TRY(algorithm(p, o, &s->mesh, TSR_PLAN_PREFILL, &pre, err));
        TSR_TRY(algorithm(p, o, &s->mesh, TSR_PLAN_DECODE, &dec, err));
        put_way(w, "collective", p->tp_wire, pre, dec);
    }
    tsr_writer_printf(w,
                      "    predicted: {weights: %llu, kv: %llu, ends: %llu, workspace: %llu,\n"
                      "      capacity: %llu",
                      (unsigned long long)m->weights, (unsigned long long)m->kv,
                      (unsigned long long)m->ends, (unsigned long long)m->workspace,
                      (unsigned long long)m->capacity);
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
        tsr_writer_printf(w, ", parts: {weights: %.9g, kv: %.9g, links: %.9g, sums: %.9g}",
                          part->weights, part->kv, part->links, part->sums);
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
    put_head(&w, p, a, c);
    tsr_writer_printf(&w, "stages:\n");
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < a->outcome.n_stages && st == TSR_OK; i++)
        st = put_stage(&w, p, &a->outcome, i, err);
    put_totals(&w, a);
    if (st != TSR_OK) {
        tsr_writer_abort(&w);
        return st;
    }
    return tsr_writer_commit(&w, err);
}
