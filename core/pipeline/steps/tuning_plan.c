/* Plans with the tuned compensation. */
#include "pipeline/steps/tuning.h"

#include "base/json.h"
#include "pipeline/step.h"
#include "plan/file/plan_file.h"

/* True if a plan names linears of that id: those of a dense layer for experts, too. */
static bool is_named(const struct tsr_model *m, enum tsr_linear_id id)
{
    bool feeds = id == TSR_MODEL_GATE || id == TSR_MODEL_UP || id == TSR_MODEL_DOWN, any = feeds;
    for (uint64_t l = 0; l < m->hp.layers && !any && tsr_model_linear_attends(id); l++)
        any = m->layers[l].lin[id].w.rows != 0;
    return any;
}

static json_t *channels_json(const struct tsr_model *m, const uint32_t k[TSR_MODEL_SITES],
                             const uint32_t blocks[TSR_MODEL_SITES])
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t i = 0; i < m->hp.linears && i < TSR_MODEL_EXPERTS && ok; i++) {
        enum tsr_linear_id id = (enum tsr_linear_id)i;
        char               name[64];
        (void)snprintf(name, sizeof name, "*.%s", tsr_model_linear_name(id));
        if (!is_named(m, id))
            continue;
        enum tsr_site kind = tsr_compensation_kind(tsr_model_linear_site(id));
        json_t       *one = json_pack("{s:s, s:I}", "tensors", name, "k", (json_int_t)k[kind]);
        if (one && k[kind] && blocks[kind])
            ok = json_object_set_new(one, "blocks", json_integer(blocks[kind])) == 0;
        ok = json_array_append_new(list, one) == 0 && ok;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* Bytes of residuals of layers [first, end) that have some k. */
static uint64_t host_bytes(const struct tsr_compensation *c, const uint32_t k[TSR_MODEL_SITES],
                           uint64_t first, uint64_t end)
{
    uint64_t n = 0;
    for (uint64_t l = first; l < end; l++)
        for (uint64_t i = 0; i < c->linears; i++) {
            const struct tsr_compensate_residual *r = &c->lin[l][i];
            enum tsr_site                         kind =
                tsr_compensation_kind(tsr_model_linear_site((enum tsr_linear_id)i));
            if (r->codes && tsr_compensate_select_count(k[kind], r->inputs))
                n += tsr_compensate_residual_bytes(r);
        }
    return n;
}

/* Sets key of an object's object of that name, which is made where it is missing. */
static bool put_in(json_t *o, const char *name, const char *key, json_t *value)
{
    json_t *in = json_object_get(o, name);
    if (!json_is_object(in)) {
        in = json_object();
        if (!tsr_pipeline_json_put(o, name, in)) {
            json_decref(value);
            return false;
        }
    }
    return tsr_pipeline_json_put(in, key, value);
}

static json_t *plain_plan(const struct tsr_model *m)
{
    char layers[32];
    (void)snprintf(layers, sizeof layers, "0-%llu", (unsigned long long)m->hp.layers - 1);
    return json_pack("{s:s, s:I, s:[{s:s, s:[{s:s, s:b}]}]}", "format", TSR_PLAN_FORMAT, "layers",
                     (json_int_t)m->hp.layers, "stages", "layers", layers, "schemes", "layers",
                     layers, "keep", 1);
}

/* The given plan as JSON, with the runs of its stages in p. */
static tsr_status read_plan(const char *from, const struct tsr_model *m, struct tsr_plan_file *p,
                            json_t **j, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_plan_file_load(p, from, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    TSR_TRY(st);
    if (p->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for %llu layers, %s has %llu; plan for this model", from,
                        (unsigned long long)p->layers, m->path, (unsigned long long)m->hp.layers);
    *j = tsr_config_node_json(tsr_config_doc_root(p->doc));
    return *j ? TSR_OK : tsr_fail_nomem(err, 0, from);
}

static bool fill_plan(json_t *j, const struct tsr_plan_file *p, const struct tsr_model *m,
                      const struct tsr_compensation *c, const uint32_t k[TSR_MODEL_SITES],
                      const uint32_t blocks[TSR_MODEL_SITES], double slower, double lost)
{
    json_t *stages = json_object_get(j, "stages");
    bool    ok = true;
    for (size_t i = 0; i < json_array_size(stages) && ok; i++) {
        json_t  *s = json_array_get(stages, i);
        uint64_t first = p->n_stages ? p->stages[i].first : 0;
        uint64_t end = p->n_stages ? first + p->stages[i].count : m->hp.layers;
        ok = tsr_pipeline_json_put(s, "compensation", channels_json(m, k, blocks)) &&
             put_in(s, "predicted", "residuals",
                    json_integer((json_int_t)host_bytes(c, k, first, end)));
    }
    return ok && put_in(j, "predicted", "slower", json_real(slower)) &&
           put_in(j, "predicted", "lost", json_real(lost));
}

tsr_status tsr_step_tuning_write(const char *path, const char *from, const struct tsr_model *m,
                                 const struct tsr_compensation *c,
                                 const uint32_t                 k[TSR_MODEL_SITES],
                                 const uint32_t blocks[TSR_MODEL_SITES], double slower, double lost,
                                 struct tsr_err *err)
{
    struct tsr_plan_file p = { 0 };
    json_t              *j = NULL;
    tsr_status           st = TSR_OK;
    if (from)
        st = read_plan(from, m, &p, &j, err);
    else
        j = plain_plan(m);
    if (st == TSR_OK && (!j || !fill_plan(j, &p, m, c, k, blocks, slower, lost)))
        st = tsr_fail_nomem(err, 0, path);
    if (st == TSR_OK)
        st = tsr_json_store(path, j, JSON_INDENT(1) | JSON_REAL_PRECISION(9), err);
    json_decref(j);
    tsr_plan_file_free(&p);
    return st;
}
