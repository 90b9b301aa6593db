#include "pipeline/chat.h"

#include "base/mem.h"
#include "checkpoint/tokenizer.h"

#include <stdlib.h>
#include <string.h>

void tsr_pipeline_chat_check(const struct tsr_pipeline_chat_keys *k,
                             const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "date");
    int64_t                       seconds;
    if (!tsr_tokenizer_chat_date(k->date, &seconds))
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, "write 2024-07-26",
                              "'date' must be YYYY-MM-DD");
}

tsr_status tsr_pipeline_chat_load(struct tsr_pipeline_job             *job,
                                  const struct tsr_pipeline_chat_keys *k, struct tsr_chat **c,
                                  struct tsr_err *err)
{
    struct tsr_checkpoint_chat how = { .name = *k->template ? k->template : NULL };
    char                      *folder = NULL, *file = NULL;
    *c = NULL;
    (void)tsr_tokenizer_chat_date(k->date, &how.date);
    if (how.name && !(file = tsr_pipeline_job_input(job, k->template)))
        return tsr_fail_nomem(err, strlen(k->template), "a path");
    how.file = file;
    tsr_status st = tsr_model_resolve(job->model_path, &folder, err);
    if (st == TSR_OK)
        st = tsr_checkpoint_chat_load(c, folder, &how, job->tokenizer, err);
    free(folder);
    free(file);
    return st;
}
