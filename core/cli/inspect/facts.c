#include "cli/inspect/facts.h"

#include "base/f16.h"
#include "tessera/backend.h"
#include "tessera/codec.h"
#include "tessera/kv.h"
#include "tessera/quantizer.h"
#include "tessera/sampler.h"
#include "tessera/solver.h"
#include "tessera/step.h"
#include "tessera/transport.h"

#include <stdio.h>
#include <string.h>

/* A member of a table that may be NULL. */
struct optional {
    size_t      offset;
    const char *name;
};

#define Q(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_quantizer_v1, m), #m                                                   \
    }
#define C(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_codec_v1, m), #m                                                       \
    }

static const struct optional quantizer_optional[] = { Q(prepare), Q(unprepare), Q(extension) };
static const struct optional codec_optional[] = { C(observe), C(freeze), C(state_bytes),
                                                  C(save),    C(load),   C(extension) };
static const struct optional transport_optional[] = {
    { offsetof(struct tsr_transport_v1, extension), "extension" }
};
static const struct optional solver_optional[] = { { offsetof(struct tsr_solver_v1, extension),
                                                     "extension" } };
static const struct optional backend_optional[] = { { offsetof(struct tsr_backend_v1, extension),
                                                      "extension" } };

static const struct optional sampler_optional[] = {
    { offsetof(struct tsr_sampler_v1, tokens), "tokens" },
    { offsetof(struct tsr_sampler_v1, extension), "extension" }
};
static const struct optional step_optional[] = { { offsetof(struct tsr_step_v1, check), "check" },
                                                 { offsetof(struct tsr_step_v1, extension),
                                                   "extension" } };

static const struct optional kv_optional[] = { { offsetof(struct tsr_kv_v1, score), "score" },
                                               { offsetof(struct tsr_kv_v1, mix), "mix" },
                                               { offsetof(struct tsr_kv_v1, extension),
                                                 "extension" } };

#define KIND(id, list)                                                                             \
    {                                                                                              \
        id, list, sizeof(list) / sizeof((list)[0])                                                 \
    }

static const struct {
    const char            *kind;
    const struct optional *optional;
    uint64_t               n;
} kinds[] = {
    KIND(TSR_KIND_QUANTIZER, quantizer_optional), KIND(TSR_KIND_CODEC, codec_optional),
    KIND(TSR_KIND_TRANSPORT, transport_optional), KIND(TSR_KIND_SOLVER, solver_optional),
    KIND(TSR_KIND_BACKEND, backend_optional),     KIND(TSR_KIND_SAMPLER, sampler_optional),
    KIND(TSR_KIND_STEP, step_optional),           KIND(TSR_KIND_KV, kv_optional),
};

/* A set of flags as a list of names; a bit without one is "bit N". */
struct flag_name {
    uint64_t    bit;
    const char *name;
};

static const struct flag_name promise_names[] = {
    { TSR_QUANT_DETERMINISTIC, "deterministic" },
    { TSR_QUANT_IDEMPOTENT, "idempotent" },
};

static const struct flag_name need_names[] = {
    { TSR_NEED_HESSIAN, "hessian" },   { TSR_NEED_ABSMAX, "absmax" },
    { TSR_NEED_MEAN, "mean" },         { TSR_NEED_VARIANCE, "variance" },
    { TSR_NEED_MEAN_ABS, "mean_abs" }, { TSR_NEED_SENSITIVITY, "sensitivity" },
    { TSR_NEED_INPUTS, "inputs" },     { TSR_NEED_CROSS, "cross" },
};

static const struct flag_name support_names[] = {
    { TSR_SOLVER_CLASSES, "classes" },
    { TSR_SOLVER_MAX_OMEGA, "max_omega" },
    { TSR_SOLVER_LINKS, "links" },
    { TSR_SOLVER_USE_ALL, "use_all" },
    { TSR_SOLVER_FORBIDDEN, "forbidden" },
    { TSR_SOLVER_WORKSPACE, "workspace" },
    { TSR_SOLVER_ENDS, "ends" },
    { TSR_SOLVER_FIXED_ORDER, "fixed_order" },
    { TSR_SOLVER_HOST, "host_bytes" },
    { TSR_SOLVER_JOBS, "prefill_jobs" },
    { TSR_SOLVER_POOLS, "pools" },
    { TSR_SOLVER_KIND_OMEGA, "kind_omega" },
    { TSR_SOLVER_LINK_CODECS, "link_codecs" },
    { TSR_SOLVER_OPTION_ENDS, "option_ends" },
    { TSR_SOLVER_MAX_FIRST, "max_first" },
    { TSR_SOLVER_ISOLATED, "isolated" },
};

static const struct flag_name step_names[] = {
    { TSR_STEP_MODEL, "model" },
    { TSR_STEP_TOKENIZER, "tokenizer" },
};

/* What only a transport may have, and only where it states it. */
static const struct flag_name transport_names[] = {
    { TSR_TRANSPORT_THREADS, "threads" },
    { TSR_TRANSPORT_STATICS, "static memory" },
};

#define FLAGS(flags, names) flags_json(flags, names, sizeof(names) / sizeof((names)[0]))

/* New reference, NULL when out of memory. */
static json_t *flags_json(uint64_t flags, const struct flag_name *names, uint64_t n)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (unsigned bit = 0; ok && bit < 64; bit++) {
        char        number[16];
        const char *name = number;
        if (!(flags & UINT64_C(1) << bit))
            continue;
        (void)snprintf(number, sizeof number, "bit %u", bit);
        for (uint64_t i = 0; i < n; i++)
            if (names[i].bit == UINT64_C(1) << bit)
                name = names[i].name;
        ok = json_array_append_new(list, json_string(name)) == 0;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

json_t *tsr_inspect_needs(uint64_t need)
{
    return FLAGS(need & UINT32_MAX, need_names);
}

void tsr_inspect_kind(const char *kind, char buf[64])
{
    const char *dot = strrchr(kind, '.'), *word = dot ? dot + 1 : kind;
    (void)snprintf(buf, 64, "%.*s", (int)strcspn(word, "/"), word);
}

static json_t *dtypes(uint32_t mask)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint32_t d = 1; ok && d < 32; d++)
        if (mask & 1u << d)
            ok = json_array_append_new(list, json_string(tsr_dtype_name(d))) == 0;
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* Optional functions in the table. */
static json_t *functions(const struct tsr_plugin_found *f)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(kinds[k].kind, f->component->kind) != 0)
            continue;
        for (uint64_t i = 0; ok && i < kinds[k].n; i++) {
            const void *fn;
            memcpy(&fn, (const char *)f->iface + kinds[k].optional[i].offset, sizeof fn);
            if (fn)
                ok = json_array_append_new(list, json_string(kinds[k].optional[i].name)) == 0;
        }
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* What a step reads and makes: needs, results of earlier steps, products. */
static bool step_facts(const struct tsr_step_v1 *t, json_t *to)
{
    json_t *inputs = json_array(), *products = json_array();
    bool    ok = json_object_set_new(to, "needs", FLAGS(t->needs, step_names)) == 0;
    for (uint64_t i = 0; t->inputs && i < t->n_inputs; i++)
        ok = json_array_append_new(inputs, json_string(t->inputs[i])) == 0 && ok;
    for (uint64_t i = 0; t->products && i < t->n_products; i++)
        ok = json_array_append_new(products, json_string(t->products[i]->name)) == 0 && ok;
    ok = json_object_set_new(to, "inputs", inputs) == 0 && ok;
    return json_object_set_new(to, "products", products) == 0 && ok;
}

bool tsr_inspect_facts(const struct tsr_plugin_found *f, json_t *to)
{
    const char *kind = f->component->kind;
    bool        ok = json_object_set_new(to, "functions", functions(f)) == 0;
    if (strcmp(kind, TSR_KIND_QUANTIZER) == 0) {
        const struct tsr_quantizer_v1 *q = f->iface;
        json_t                        *promises = FLAGS(q->promises, promise_names);
        if (promises && q->max_error_steps)
            ok = ok && json_array_append_new(promises, json_string("max_error_steps")) == 0;
        if (promises && q->columns_alone)
            ok = ok && json_array_append_new(promises, json_string("columns_alone")) == 0;
        ok = json_object_set_new(to, "promises", promises) == 0 && ok;
        return ok && json_object_set_new(to, "dtypes", dtypes(q->src_dtypes)) == 0;
    }
    ok = ok && json_object_set_new(to, "promises", json_array()) == 0;
    if (strcmp(kind, TSR_KIND_SOLVER) == 0) {
        const struct tsr_solver_v1 *s = f->iface;
        ok = ok && json_object_set_new(to, "supports", FLAGS(s->supports, support_names)) == 0;
    }
    if (strcmp(kind, TSR_KIND_TRANSPORT) == 0) {
        const struct tsr_transport_v1 *t = f->iface;
        ok = ok && json_object_set_new(to, "states", FLAGS(t->needs, transport_names)) == 0;
    }
    if (strcmp(kind, TSR_KIND_STEP) == 0)
        ok = ok && step_facts(f->iface, to);
    return ok;
}
