#include "pipeline/drafting.h"

#include "base/json.h"
#include "base/log.h"
#include "pipeline/put.h"

const struct tsr_choice tsr_pipeline_draft_choices[2] = {
    { "none", "Each pass has one new token of a text.", TSR_PIPELINE_DRAFT_NONE },
    { "lookup", "What followed the last tokens earlier in the text.", TSR_PIPELINE_DRAFT_LOOKUP },
};

void tsr_pipeline_draft_check(const struct tsr_pipeline_draft_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "draft_tokens");
    if (k->draft_tokens && k->draft == TSR_PIPELINE_DRAFT_NONE)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, "add draft: lookup",
                              "'draft_tokens' needs 'draft'");
}

uint32_t tsr_pipeline_draft_of(const struct tsr_pipeline_draft_keys *k, const char *why)
{
    if (k->draft == TSR_PIPELINE_DRAFT_NONE)
        return 0;
    if (why) {
        tsr_logf(TSR_LOG_WARN, "no drafts: %s", why);
        return 0;
    }
    return k->draft_tokens ? (uint32_t)k->draft_tokens : TSR_ENGINE_DRAFT_CHOSEN;
}

uint32_t tsr_pipeline_draft_on(const struct tsr_pipeline_draft_keys *k,
                               const struct tsr_model_hparams       *hp,
                               const struct tsr_engine_options      *o)
{
    const char *why = NULL;
    (void)tsr_engine_drafts(hp, o, &why);
    return tsr_pipeline_draft_of(k, why);
}

bool tsr_pipeline_draft_put(json_t *object, const struct tsr_pipeline_draft_keys *k,
                            const struct tsr_engine_drafted *n)
{
    return k->draft == TSR_PIPELINE_DRAFT_NONE ||
           tsr_pipeline_json_put(object, "drafts",
                                 json_pack("{s:I, s:I}", "drafted", (json_int_t)n->drafted,
                                           "accepted", (json_int_t)n->accepted));
}
