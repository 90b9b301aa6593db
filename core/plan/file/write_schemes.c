#include "plan/file/write_schemes.h"

#include <string.h>

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

bool tsr_plan_write_value(char *buf, size_t cap, size_t *at, const char *s, size_t n)
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

bool tsr_plan_write_rule(const struct tsr_plan_candidate *c, char *buf, size_t cap)
{
    size_t at = 0;
    if (!c->q.self)
        return add(buf, cap, &at, "keep: true", 10);
    bool ok = add(buf, cap, &at, "use: ", 5) &&
              tsr_plan_write_value(buf, cap, &at, c->scheme, strlen(c->scheme));
    for (const char *s = c->options; ok && *s;) {
        size_t n = strcspn(s, ","), key = strcspn(s, "=");
        if (key < n)
            ok = add(buf, cap, &at, ", ", 2) && add(buf, cap, &at, s, key) &&
                 add(buf, cap, &at, ": ", 2) &&
                 tsr_plan_write_value(buf, cap, &at, s + key + 1, n - key - 1);
        s += n + (s[n] == ',');
    }
    return ok;
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
    char rule[TSR_PLAN_RULE_TEXT];
    if (!tsr_plan_write_rule(c, rule, sizeof rule))
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

bool tsr_plan_write_schemes(struct tsr_writer *w, const struct tsr_plan_problem *p,
                            const struct tsr_plan_outcome       *o,
                            const struct tsr_plan_outcome_stage *s)
{
    tsr_writer_printf(w, "    schemes:\n");
    for (uint64_t c = 0; c < p->candidates.n; c++) {
        uint64_t end = s->first + s->count, runs = 0;
        char     rule[TSR_PLAN_RULE_TEXT];
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
        if (!tsr_plan_write_rule(&p->candidates.v[c], rule, sizeof rule))
            return false;
        tsr_writer_printf(w, "\", %s}\n", rule);
    }
    return true;
}
