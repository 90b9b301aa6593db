#include "pipeline/drafting.h"
#include "pipeline/job.h"

#include "base/file.h"
#include "base/mem.h"
#include "pipeline/put.h"

#include <stdlib.h>
#include <string.h>

bool tsr_pipeline_draft_wanted(const struct tsr_pipeline_draft_keys *k)
{
    return strcmp(k->draft, "none") != 0;
}

static bool is_model(const struct tsr_pipeline_draft_keys *k)
{
    return tsr_pipeline_draft_wanted(k) && strcmp(k->draft, "lookup") != 0 &&
           strcmp(k->draft, "self") != 0;
}

char *tsr_pipeline_draft_path(const struct tsr_pipeline_job        *job,
                              const struct tsr_pipeline_draft_keys *k)
{
    return tsr_model_is_name(k->draft) ? tsr_strdup(k->draft)
                                       : tsr_path_join(job->state->dir, k->draft);
}

void tsr_pipeline_draft_check(const struct tsr_pipeline_job        *job,
                              const struct tsr_pipeline_draft_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *tokens = tsr_config_node_get(node, "draft_tokens");
    const struct tsr_config_node *bits = tsr_config_node_get(node, "draft_bits");
    const struct tsr_config_node *draft = tsr_config_node_get(node, "draft");
    char                         *path = is_model(k) ? tsr_pipeline_draft_path(job, k) : NULL;
    if (k->draft_tokens && !tsr_pipeline_draft_wanted(k))
        tsr_config_diag_error(d, tokens ? &tokens->mark : &node->mark, "add draft: lookup",
                              "'draft_tokens' needs 'draft'");
    if (k->draft_bits && strcmp(k->draft, "self") != 0)
        tsr_config_diag_error(d, bits ? &bits->mark : &node->mark, "add draft: self",
                              "'draft_bits' is for 'draft: self'");
    else if (k->draft_bits == 1)
        tsr_config_diag_error(d, bits ? &bits->mark : &node->mark, NULL,
                              "'draft_bits' must be from 2 to 8, or 0 for %d",
                              TSR_PIPELINE_DRAFT_BITS);
    if (path && !tsr_model_is_name(path) && !tsr_path_exists(path))
        tsr_config_diag_error(d, draft ? &draft->mark : &node->mark,
                              "draft is none, lookup, self or a model", "no such model: '%s'",
                              path);
    free(path);
}

bool tsr_pipeline_draft_put(json_t *object, const struct tsr_pipeline_draft_keys *k,
                            const struct tsr_engine_drafted *n)
{
    if (!tsr_pipeline_draft_wanted(k))
        return true;
    json_t *j = json_pack("{s:I, s:I}", "drafted", (json_int_t)n->drafted, "accepted",
                          (json_int_t)n->accepted);
    bool    ok = !n->bytes || tsr_pipeline_json_put_int(j, "bytes", n->bytes);
    return tsr_pipeline_json_put(object, "drafts", j) && ok;
}
