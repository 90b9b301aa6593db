/* The rules of a scheme on a model: which hold for a linear, and the plugin instance of each distinct choice. */
#include "quant/scheme_run_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A message with the place of a rule. */
static tsr_status rule_error(const struct rule *r, struct tsr_err *err, const char *fmt,
                             const char *text)
{
    struct tsr_diag *d;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_config_diag_error(d, &r->node->mark, NULL, fmt, text);
    tsr_status st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    return st;
}

/* Flags of n layers or experts, where the rule names some. */
static tsr_status read_ranges(const struct rule *r, const char *text, const char *what, uint64_t n,
                              bool **in, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              said[600];
    if (!*text)
        return TSR_OK;
    if (n == 0)
        return rule_error(r, err, "%ss: the model has none", what);
    *in = tsr_new(n, sizeof **in);
    if (!*in)
        return tsr_fail_nomem(err, n, "the rules of a scheme");
    tsr_status st = tsr_config_parse_ranges_of(text, what, n, *in, &e.err);
    if (st != TSR_E_INPUT)
        return st == TSR_OK ? TSR_OK : tsr_err_copy(err, st, &e.err);
    (void)snprintf(said, sizeof said, "%ss: %.500s", what, e.text);
    return rule_error(r, err, "%s", said);
}

static tsr_status read_layers(struct tsr_scheme_run *a, struct tsr_err *err)
{
    uint64_t n = a->s->n_rules, layers = a->m->hp.layers;
    a->layers = tsr_new(n, sizeof *a->layers);
    a->experts = tsr_new(n, sizeof *a->experts);
    a->matches = tsr_new(n, sizeof *a->matches);
    a->flags = tsr_new(n, sizeof *a->flags);
    if (!a->layers || !a->experts || !a->matches || !a->flags)
        return tsr_fail_nomem(err, n * 32, "the rules of a scheme");
    for (uint64_t i = 0; i < n; i++) {
        const struct rule *r = &a->s->rules[i];
        if (r->model_layers && (uint64_t)r->model_layers != layers) {
            char text[320];
            (void)snprintf(text, sizeof text, "%lld layers, %.200s has %llu",
                           (long long)r->model_layers, a->m->path, (unsigned long long)layers);
            return rule_error(r, err,
                              "the rule was written for a model of %s; give this one its own",
                              text);
        }
        TSR_TRY(read_ranges(r, r->layers, "layer", layers, &a->layers[i], err));
        TSR_TRY(read_ranges(r, r->experts, "expert", a->m->hp.experts, &a->experts[i], err));
    }
    return TSR_OK;
}

/* Whether the linear is one of these experts'. */
static bool of_experts(const bool *in, const char *name)
{
    static const char mark[] = ".experts.";
    const char       *at = strstr(name, mark);
    return at && in[strtoul(at + sizeof mark - 1, NULL, 10)];
}

/* A router decides which experts run: it is packed only if a rule's pattern names it. */
static bool spares_router(const char *pattern, const char *name)
{
    static const char router[] = ".router";
    size_t            n = strlen(name), k = sizeof router - 1;
    return n > k && strcmp(name + n - k, router) == 0 && !strstr(pattern, router + 1);
}

/* Flags the rules that hold for a linear; layer is the model's number of layers for the head and the
 * embedding, which are packed only if a rule gives their exact name.  Returns false if the linear is
 * not quantized. */
static bool rules_of(struct tsr_scheme_run *a, uint64_t layer, const char *name)
{
    bool end = layer == a->m->hp.layers, quantize = !end && !spares_router("", name);
    for (uint64_t i = 0; i < a->s->n_rules; i++) {
        const struct rule *r = &a->s->rules[i];
        bool               hit = !r->tensors[0] || tsr_quant_name_matches(r->tensors, name);
        if (a->layers[i])
            hit = hit && !end && a->layers[i][layer];
        if (a->experts[i])
            hit = hit && !end && of_experts(a->experts[i], name);
        hit = hit && !spares_router(r->tensors, name);
        a->flags[i] = hit;
        if (!hit)
            continue;
        bool named = !end || strcmp(r->tensors, name) == 0;
        a->matches[i] += named || r->keep;
        if (r->keep)
            quantize = false;
        else if (named)
            quantize = true; /* a later rule takes an earlier keep back */
    }
    return quantize;
}

/* Room for one more, which is then there with its flags. */
static tsr_status add_instance(struct tsr_scheme_run *a, struct tsr_quant_scheme_instance **out,
                               struct tsr_err *err)
{
    uint64_t n = a->s->n_rules;
    if (a->n_instances == a->cap) {
        uint64_t                           cap = a->cap ? 2 * a->cap : 8;
        struct tsr_quant_scheme_instance **v = tsr_renew(a->instances, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "quantizers");
        a->instances = v;
        a->cap = cap;
    }
    struct tsr_quant_scheme_instance *in = tsr_new(1, sizeof *in);
    bool                             *flags = tsr_new(n, sizeof *flags);
    if (!in || !flags) {
        free(in);
        free(flags);
        return tsr_fail_nomem(err, n + sizeof *in, "quantizers");
    }
    memcpy(flags, a->flags, n * sizeof *flags);
    in->flags = flags;
    a->instances[a->n_instances++] = in; /* from here on freed with the rest */
    *out = in;
    return TSR_OK;
}

/* The lock is held, or there is only one thread. */
static tsr_status find_instance(struct tsr_scheme_run *a, struct tsr_quant_scheme_instance **found,
                                struct tsr_err *err)
{
    for (uint64_t i = 0; i < a->n_instances; i++) {
        *found = a->instances[i];
        if (memcmp((*found)->flags, a->flags, a->s->n_rules * sizeof *a->flags) == 0)
            return TSR_OK;
    }
    struct tsr_quant_scheme_instance *in = NULL;
    TSR_TRY(add_instance(a, &in, err));
    *found = in;
    struct tsr_diag *d;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = scheme_choose(a->s, in->flags, &in->choice, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK)
        return st;
    struct tsr_quantizer q;
    st = tsr_quant_remarks_open(&a->remarks, &q, a->registry, &in->choice.found,
                                tsr_plugin_registry_host(a->registry), in->choice.options, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "quantizer '%s'", in->choice.found.component->name);
    in->q = q;
    return TSR_OK;
}

tsr_status tsr_quant_scheme_instance(struct tsr_scheme_run *a, uint64_t layer, const char *name,
                                     struct tsr_quant_scheme_instance **in, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    *in = NULL;
    (void)pthread_mutex_lock(&a->lock);
    if (rules_of(a, layer, name))
        st = find_instance(a, in, err);
    (void)pthread_mutex_unlock(&a->lock);
    return st;
}

bool tsr_quant_scheme_takes_ends(struct tsr_scheme_run *a)
{
    bool embed = rules_of(a, a->m->hp.layers, a->m->embed.name);
    return rules_of(a, a->m->hp.layers, TSR_QUANT_HEAD_NAME) || embed;
}

/* One pass over the names before any work: a rule that matches nothing is a typing error. */
static tsr_status check_matches(struct tsr_scheme_run *a, struct tsr_err *err)
{
    for (uint64_t l = 0; l < a->m->hp.layers; l++)
        for (uint64_t i = 0; i < a->m->hp.linears; i++)
            if (a->m->layers[l].lin[i].w.rows && rules_of(a, l, a->m->layers[l].lin[i].w.name))
                a->total++;
    bool head = rules_of(a, a->m->hp.layers, TSR_QUANT_HEAD_NAME);
    if (rules_of(a, a->m->hp.layers, a->m->embed.name) && a->m->hp.tied && !head)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "a rule names %s, which is the head of model '%s' too: name lm_head in a rule as "
            "well, or neither",
            a->m->embed.name, a->m->path);
    for (uint64_t i = 0; i < a->s->n_rules; i++)
        if (a->matches[i] == 0 &&
            (tsr_quant_name_matches(a->s->rules[i].tensors, a->m->embed.name) ||
             tsr_quant_name_matches(a->s->rules[i].tensors, TSR_QUANT_HEAD_NAME)))
            return rule_error(&a->s->rules[i], err,
                              "head and embedding are packed where a rule has their whole "
                              "name, " TSR_QUANT_HEAD_NAME " or %s",
                              a->m->embed.name);
        else if (a->matches[i] == 0)
            return rule_error(&a->s->rules[i], err, "this rule matches no linear of model '%s'",
                              a->m->path);
    return TSR_OK;
}

tsr_status tsr_quant_scheme_open(struct tsr_scheme_run **out, const struct tsr_quant_scheme *s,
                                 struct tsr_registry *r, const struct tsr_model *m,
                                 struct tsr_err *err)
{
    TSR_TRY(tsr_model_plain(m, "quantized", err));
    if (m->packed)
        return tsr_fail(err, TSR_E_INPUT, "%s is packed already; quantize the original", m->path);
    struct tsr_scheme_run *a = tsr_new(1, sizeof *a);
    if (!a)
        return tsr_fail_nomem(err, sizeof *a, "a scheme");
    *a = (struct tsr_scheme_run){ .s = s, .registry = r, .m = m };
    (void)pthread_mutex_init(&a->lock, NULL);
    tsr_status st = read_layers(a, err);
    if (st == TSR_OK)
        st = check_matches(a, err);
    if (st != TSR_OK) {
        tsr_quant_scheme_close(a);
        return st;
    }
    *out = a;
    return TSR_OK;
}

void tsr_quant_scheme_close(struct tsr_scheme_run *a)
{
    if (!a)
        return;
    for (uint64_t i = 0; i < a->n_instances; i++) {
        struct tsr_quant_scheme_instance *in = a->instances[i];
        if (in->q.iface)
            tsr_quantizer_close(&in->q);
        free(in->choice.options);
        free(in->flags);
        free(in);
    }
    free(a->instances);
    for (uint64_t i = 0; a->layers && i < a->s->n_rules; i++)
        free(a->layers[i]);
    for (uint64_t i = 0; a->experts && i < a->s->n_rules; i++)
        free(a->experts[i]);
    free(a->layers);
    free(a->experts);
    free(a->matches);
    free(a->flags);
    tsr_quant_remarks_free(&a->remarks);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}
