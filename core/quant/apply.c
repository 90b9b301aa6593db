/* Runs a scheme: finds the rules of every linear, makes one plugin instance for each distinct
 * choice, and quantizes site by site so that linears with one input share one prepare(). */
#include "scheme_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_NAME "lm_head"

/* A plugin with one set of options, alive while the scheme runs. */
struct instance {
    bool                *flags; /* [n_rules] that lead here; owned */
    struct choice        choice;
    struct tsr_quantizer q;
};

struct apply {
    struct tsr_scheme            *s;
    struct tsr_registry          *registry;
    const struct tsr_model       *m;
    const struct tsr_calibration *c;
    struct tsr_overlay           *o;
    struct instance              *instances;
    uint64_t                      n_instances, cap;
    bool                        **layers;  /* [n_rules] -> [layers], or NULL: all */
    uint64_t                     *matches; /* [n_rules] */
    bool                         *flags;   /* [n_rules] scratch */
    uint64_t                      done, total;
};

/* A sentence with the place of a rule. */
static tsr_status rule_error(const struct rule *r, struct tsr_err *err, const char *fmt,
                             const char *text)
{
    struct tsr_diag *d;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_diag_error(d, &r->node->mark, NULL, fmt, text);
    tsr_status st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    return st;
}

static tsr_status read_layers(struct apply *a, struct tsr_err *err)
{
    uint64_t n = a->s->n_rules, layers = a->m->hp.layers;
    a->layers = tsr_new(n, sizeof *a->layers);
    a->matches = tsr_new(n, sizeof *a->matches);
    a->flags = tsr_new(n, sizeof *a->flags);
    if (!a->layers || !a->matches || !a->flags)
        return tsr_fail_nomem(err, n * 24, "the rules of a scheme");
    for (uint64_t i = 0; i < n; i++) {
        const struct rule *r = &a->s->rules[i];
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        if (!r->layers[0])
            continue;
        a->layers[i] = tsr_new(layers, sizeof **a->layers);
        if (!a->layers[i])
            return tsr_fail_nomem(err, layers, "the rules of a scheme");
        tsr_status st = tsr_parse_ranges(r->layers, layers, a->layers[i], &e.err);
        if (st == TSR_E_INPUT)
            return rule_error(r, err, "layers: %s", e.text);
        if (st != TSR_OK)
            return tsr_fail(err, st, "%s", e.text);
    }
    return TSR_OK;
}

/* Flags the rules that hold for a linear; layer is the model's number of layers for the head.
 * Returns false if the linear stays as it is. */
static bool rules_of(struct apply *a, uint64_t layer, const char *name)
{
    bool head = layer == a->m->hp.layers, quantize = !head;
    for (uint64_t i = 0; i < a->s->n_rules; i++) {
        const struct rule *r = &a->s->rules[i];
        bool               hit = !r->tensors[0] || tsr_name_matches(r->tensors, name);
        if (a->layers[i])
            hit = hit && !head && a->layers[i][layer];
        a->flags[i] = hit;
        if (!hit)
            continue;
        a->matches[i]++;
        if (r->keep)
            quantize = false;
        else if (!head || strcmp(r->tensors, HEAD_NAME) == 0)
            quantize = true; /* a later rule takes an earlier keep back */
    }
    return quantize;
}

static tsr_status find_instance(struct apply *a, uint64_t *index, struct tsr_err *err)
{
    uint64_t n = a->s->n_rules;
    for (*index = 0; *index < a->n_instances; ++*index)
        if (memcmp(a->instances[*index].flags, a->flags, n * sizeof *a->flags) == 0)
            return TSR_OK;
    if (a->n_instances == a->cap) {
        uint64_t         cap = a->cap ? 2 * a->cap : 8;
        struct instance *v = tsr_renew(a->instances, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "quantizers");
        a->instances = v;
        a->cap = cap;
    }
    struct instance *in = &a->instances[a->n_instances];
    *in = (struct instance){ .flags = tsr_new(n, sizeof *in->flags) };
    if (!in->flags)
        return tsr_fail_nomem(err, n, "quantizers");
    a->n_instances++; /* from here on freed with the rest */
    memcpy(in->flags, a->flags, n * sizeof *a->flags);
    struct tsr_diag *d;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = scheme_choose(a->s, in->flags, &in->choice, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    if (st != TSR_OK)
        return st;
    const struct tsr_quantizer_v1 *q = in->choice.found.iface;
    void                          *self = NULL;
    st = q->create(tsr_registry_host(a->registry), in->choice.options, &self, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", in->choice.found.component->name);
    in->q = (struct tsr_quantizer){ q, self, in->choice.found.component->name };
    return TSR_OK;
}

static tsr_status plan_need(const struct instance *in, const struct tsr_matrix *w, uint64_t *need,
                            struct tsr_err *err)
{
    struct tsr_quant_plan p = { .struct_size = sizeof p,
                                .format = { .struct_size = sizeof p.format } };
    struct tsr_matrix     shape = *w;
    shape.data = NULL;
    tsr_status st = in->q.iface->plan(in->q.self, &shape, &p, err);
    *need = p.need;
    return st;
}

/* A linear of a site together with who quantizes it. */
struct item {
    enum tsr_linear_id id;
    bool               quantize;
    uint64_t           instance, need;
};

/* TSR_E_UNSUPPORTED keeps the original where the scheme says so. */
static tsr_status or_keep(const struct apply *a, tsr_status st, const char *name,
                          struct tsr_err *err)
{
    if (st != TSR_E_UNSUPPORTED || a->s->keys.on_unsupported != UNSUPPORTED_KEEP)
        return st;
    tsr_logf(TSR_LOG_WARN, "%s keeps its original weights: %s", name,
             err && err->cap ? err->text : "not supported");
    return TSR_OK;
}

static tsr_status quantize_shared(struct apply *a, uint64_t layer, struct item *items, int n,
                                  int first, struct tsr_err *err)
{
    struct instance              *in = &a->instances[items[first].instance];
    const struct tsr_quant_stats *all =
        a->c ? &a->c->site[layer][tsr_linear_site(items[first].id)] : NULL;
    uint64_t need = 0;
    for (int i = first; i < n; i++)
        if (items[i].quantize && items[i].instance == items[first].instance)
            need |= items[i].need;
    const struct tsr_matrix *w = &a->m->layers[layer].lin[items[first].id].w;
    TSR_TRY(tsr_quant_need_check(need, all, w->cols, in->q.name, w->name, err));
    struct tsr_quant_stats seen = tsr_quant_stats_for(need, all);
    void                  *prepared = NULL;
    tsr_status             st = TSR_OK;
    if (need && in->q.iface->prepare)
        st = in->q.iface->prepare(in->q.self, &seen, &prepared, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s', inputs of '%s'", in->q.name, w->name);
    for (int i = first; i < n && st == TSR_OK; i++) {
        if (!items[i].quantize || items[i].instance != items[first].instance)
            continue;
        w = &a->m->layers[layer].lin[items[i].id].w;
        st = tsr_quantize_prepared(a->registry, &in->q, w, items[i].need ? &seen : NULL, prepared,
                                   &a->o->lin[layer][items[i].id], err);
        st = or_keep(a, st, w->name, err);
        if (i != first)
            items[i].quantize = false;
        tsr_progress("quantize", ++a->done, a->total);
    }
    items[first].quantize = false;
    if (prepared && in->q.iface->unprepare)
        in->q.iface->unprepare(in->q.self, prepared);
    return st;
}

static tsr_status apply_site(struct apply *a, uint64_t layer, enum tsr_site site,
                             struct tsr_err *err)
{
    struct item items[TSR_LINEARS];
    int         n = 0;
    for (int i = 0; i < TSR_LINEARS; i++) {
        const struct tsr_matrix *w = &a->m->layers[layer].lin[i].w;
        if (tsr_linear_site((enum tsr_linear_id)i) != site || !w->data)
            continue;
        struct item *it = &items[n];
        *it = (struct item){ .id = (enum tsr_linear_id)i };
        if (!rules_of(a, layer, w->name))
            continue;
        TSR_TRY(find_instance(a, &it->instance, err));
        tsr_status st = plan_need(&a->instances[it->instance], w, &it->need, err);
        it->quantize = st == TSR_OK;
        n++;
        st = or_keep(a, st, w->name, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "quantizer '%s'", a->instances[it->instance].q.name);
    }
    for (int i = 0; i < n; i++)
        if (items[i].quantize)
            TSR_TRY(quantize_shared(a, layer, items, n, i, err));
    return TSR_OK;
}

static tsr_status apply_head(struct apply *a, struct tsr_err *err)
{
    if (!rules_of(a, a->m->hp.layers, HEAD_NAME))
        return TSR_OK;
    uint64_t index;
    TSR_TRY(find_instance(a, &index, err));
    tsr_status st = tsr_quantize_matrix(a->registry, &a->instances[index].q, &a->m->head.w, NULL,
                                        &a->o->head, err);
    return or_keep(a, st, HEAD_NAME, err);
}

static tsr_status check_matches(const struct apply *a, struct tsr_err *err)
{
    for (uint64_t i = 0; i < a->s->n_rules; i++)
        if (a->matches[i] == 0)
            return rule_error(&a->s->rules[i], err, "this rule matches no linear of model '%s'",
                              a->m->path);
    return TSR_OK;
}

/* One pass over the names before any work: a rule that matches nothing is a typing error. */
static tsr_status dry_run(struct apply *a, struct tsr_err *err)
{
    for (uint64_t l = 0; l < a->m->hp.layers; l++)
        for (int i = 0; i < TSR_LINEARS; i++)
            if (a->m->layers[l].lin[i].w.data && rules_of(a, l, a->m->layers[l].lin[i].w.name))
                a->total++;
    (void)rules_of(a, a->m->hp.layers, HEAD_NAME);
    return check_matches(a, err);
}

static tsr_status run(struct apply *a, struct tsr_err *err)
{
    TSR_TRY(read_layers(a, err));
    TSR_TRY(dry_run(a, err));
    if (a->c && a->c->layers != a->m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT, "the calibration is of %llu layers, the model has %llu",
                        (unsigned long long)a->c->layers, (unsigned long long)a->m->hp.layers);
    TSR_TRY(tsr_overlay_create(&a->o, a->m->hp.layers, err));
    for (uint64_t l = 0; l < a->m->hp.layers; l++)
        for (int site = 0; site < TSR_SITES; site++)
            TSR_TRY(apply_site(a, l, (enum tsr_site)site, err));
    return apply_head(a, err);
}

tsr_status tsr_scheme_apply(struct tsr_scheme *s, struct tsr_registry *r, const struct tsr_model *m,
                            const struct tsr_calibration *c, struct tsr_overlay **o,
                            struct tsr_err *err)
{
    struct apply a = { .s = s, .registry = r, .m = m, .c = c };
    tsr_status   st = run(&a, err);
    for (uint64_t i = 0; i < a.n_instances; i++) {
        struct instance *in = &a.instances[i];
        if (in->q.iface)
            in->q.iface->destroy(in->q.self);
        free(in->choice.options);
        free(in->flags);
    }
    free(a.instances);
    for (uint64_t i = 0; a.layers && i < s->n_rules; i++)
        free(a.layers[i]);
    free(a.layers);
    free(a.matches);
    free(a.flags);
    if (st != TSR_OK) {
        tsr_overlay_destroy(a.o);
        return st;
    }
    *o = a.o;
    return TSR_OK;
}
