/* Residuals for an engine, from a model or from a step before. */
#include "pipeline/compensating.h"

#include "base/mem.h"
#include "pipeline/put.h"

#include <stdlib.h>

const struct tsr_choice tsr_positions_choices[2] = {
    { "decode", "tokens that were generated", TSR_PIPELINE_POSITIONS_DECODE },
    { "all", "every token, prompts too", TSR_PIPELINE_POSITIONS_ALL },
};

tsr_status tsr_pipeline_compensating_open(struct tsr_pipeline_compensating          *c,
                                          const struct tsr_pipeline_compensate_keys *k,
                                          const char *plan, const char *folder,
                                          const struct tsr_model *m, uint64_t seed,
                                          const struct tsr_engine_compensate **e,
                                          struct tsr_err                      *err)
{
    *e = NULL;
    if (!plan && *k->compensate_plan)
        plan = k->compensate_plan;
    if (k->compensate == 0 && !plan)
        return TSR_OK;
    if (k->compensate != 0 && plan)
        return tsr_fail(err, TSR_E_INPUT,
                        "compensate and compensate_plan both say how many channels; give one");
    TSR_TRY(folder ? tsr_compensation_open(&c->from, folder, m, err)
                   : tsr_compensation_of_model(&c->from, m, err));
    if (plan)
        TSR_TRY(tsr_pipeline_compensating_plan(plan, m, &c->k, &c->blocks, err));
    c->use =
        (struct tsr_engine_compensate){ .from = c->from,
                                        .each = (uint32_t)k->compensate,
                                        .k = (const uint32_t(*)[TSR_MODEL_SITES])c->k,
                                        .blocks = (const uint32_t(*)[TSR_MODEL_SITES])c->blocks,
                                        .select = (enum tsr_compensate_select)k->select,
                                        .all = k->positions == TSR_PIPELINE_POSITIONS_ALL,
                                        .recall = k->recall != 0,
                                        .seed = seed };
    *e = &c->use;
    return TSR_OK;
}

void tsr_pipeline_compensating_close(struct tsr_pipeline_compensating *c)
{
    tsr_compensation_destroy(c->from);
    free(c->k);
    free(c->blocks);
    *c = (struct tsr_pipeline_compensating){ 0 };
}

bool tsr_pipeline_compensating_put(json_t *object, const struct tsr_pipeline_compensate_keys *k,
                                   const struct tsr_pipeline_compensating *c,
                                   const struct tsr_engine                *e)
{
    struct tsr_engine_compensated done;
    tsr_engine_compensation(e, &done);
    return tsr_pipeline_compensating_put_done(object, k, c, &done);
}

bool tsr_pipeline_compensating_put_done(json_t                                    *object,
                                        const struct tsr_pipeline_compensate_keys *k,
                                        const struct tsr_pipeline_compensating    *c,
                                        const struct tsr_engine_compensated       *done)
{
    if (!c->from)
        return true;
    json_t *j = json_object();
    bool    ok =
        tsr_pipeline_json_put(j, "k", c->k ? json_null() : json_integer(k->compensate)) &&
        tsr_pipeline_json_put_text(j, "select", tsr_compensate_select_choices[k->select].name) &&
        tsr_pipeline_json_put_text(j, "positions", tsr_positions_choices[k->positions].name) &&
        tsr_pipeline_json_put_int(j, "bits", c->from->bits) &&
        tsr_pipeline_json_put_int(j, "linears", done->linears) &&
        tsr_pipeline_json_put_int(j, "host_bytes", done->host_bytes) &&
        tsr_pipeline_json_put_int(j, "tokens", done->tokens) &&
        tsr_pipeline_json_put_int(j, "selected", done->selected);
    if (ok && done->exact)
        ok = tsr_pipeline_json_put_real(j, "recall", (double)done->common / (double)done->exact);
    return tsr_pipeline_json_put(object, "compensation", j) && ok;
}
