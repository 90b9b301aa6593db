#include "pipeline/sampling.h"

#include "base/json.h"
#include "base/log.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#define NAME "generation_config.json"

struct reading {
    const json_t                 *j;
    const struct tsr_config_node *node;
    struct tsr_err               *err;
    char                          taken[200]; /* ", top_p 0.95" and so on */
};

static void note(struct reading *r, const char *key, double v)
{
    size_t n = strlen(r->taken);
    (void)snprintf(r->taken + n, sizeof r->taken - n, "%s%s %g", n ? ", " : "", key, v);
}

/* Whether the file has the key and nothing else states it. */
static bool is_open(const struct reading *r, const char *key)
{
    const json_t *v = json_object_get(r->j, key);
    return v && !json_is_null(v) && !tsr_config_node_get(r->node, key);
}

static tsr_status take(struct reading *r, const char *key, double lo, double hi, double *v)
{
    if (!is_open(r, key))
        return TSR_OK;
    TSR_TRY(tsr_json_real(r->j, NAME, key, false, lo, hi, v, r->err));
    note(r, key, *v);
    return TSR_OK;
}

static tsr_status take_all(struct reading *r, struct tsr_engine_sampling *s)
{
    int64_t k = (int64_t)s->top_k;
    bool    sample = true;
    TSR_TRY(take(r, "temperature", 0, 100, &s->temperature));
    TSR_TRY(take(r, "top_p", 1e-9, 1, &s->top_p));
    TSR_TRY(take(r, "min_p", 0, 1, &s->min_p));
    TSR_TRY(take(r, "repetition_penalty", 1e-3, 1e3, &s->repetition_penalty));
    if (is_open(r, "top_k")) {
        TSR_TRY(tsr_json_int(r->j, NAME, "top_k", false, 0, INT64_C(1) << 31, &k, r->err));
        s->top_k = (uint64_t)k;
        note(r, "top_k", (double)k);
    }
    TSR_TRY(tsr_json_bool(r->j, NAME, "do_sample", false, &sample, r->err));
    if (sample || tsr_config_node_get(r->node, "temperature"))
        return TSR_OK;
    s->temperature = 0;
    note(r, "temperature", 0);
    return TSR_OK;
}

tsr_status tsr_pipeline_sampling(struct tsr_pipeline_job *job, const struct tsr_config_node *node,
                                 struct tsr_engine_sampling *s, struct tsr_err *err)
{
    struct reading r = { .node = node, .err = err };
    json_t        *j = NULL;
    char          *text = NULL;
    uint64_t       len = 0;
    TSR_TRY(tsr_model_text(job->model, NAME, &text, &len, err));
    if (!text)
        return TSR_OK;
    tsr_status st = tsr_json_parse(&j, NAME, text, len, 32, err);
    r.j = j;
    if (st == TSR_OK)
        st = take_all(&r, s);
    if (st == TSR_OK && *r.taken)
        tsr_logf(TSR_LOG_INFO, "sampling of the model's %s: %s", NAME, r.taken);
    json_decref(j);
    free(text);
    return st;
}
