/* tasks/task.h - an evaluation task: how rows of a data set become requests, and what is computed from their
 * log-likelihoods.  A task is a YAML file (docs/formats/task.md); those of configs/tasks are part of the program.
 */
#ifndef TSR_TASKS_TASK_H
#define TSR_TASKS_TASK_H

#include "base/hash.h"
#include "config/config.h"
#include "template/template.h"

#define TSR_TASKS_FORMAT "tessera.task/1"

enum tsr_tasks_kind {
    TSR_TASKS_CHOICES,      /* one context, several continuations */
    TSR_TASKS_CONTEXTS,     /* several contexts, one continuation */
    TSR_TASKS_CONTINUATION, /* one of each */
    TSR_TASKS_TEXT          /* a text as a whole */
};
enum tsr_tasks_metric {
    TSR_TASKS_ACC,
    TSR_TASKS_ACC_NORM,
    TSR_TASKS_ACC_BYTES,
    TSR_TASKS_ACC_MUTUAL_INFO,
    TSR_TASKS_PERPLEXITY,
    TSR_TASKS_WORD_PERPLEXITY,
    TSR_TASKS_BYTE_PERPLEXITY,
    TSR_TASKS_BITS_PER_BYTE,
    TSR_TASKS_METRICS
};
const char *tsr_tasks_metric_name(enum tsr_tasks_metric m);

struct tsr_tasks_task {
    struct tsr_config_doc *doc; /* owns the texts below */
    char                   hash[TSR_HASH_TEXT];
    const char            *name, *summary;
    const char         *dataset, *config, *split, *shot_split; /* config, shot_split: "" for none */
    enum tsr_tasks_kind kind;
    struct tsr_template  *description, *context, *continuation, *answer, *text; /* or NULL */
    struct tsr_template  *options; /* renders choices or contexts as a JSON list; or NULL */
    struct tsr_template **option;  /* [n_options] each by itself; or NULL */
    uint64_t              n_options;
    const char           *delimiter, *shot_delimiter, *by; /* by: "" for no groups */
    int64_t               shots;
    bool                  first; /* shots are the first rows, not a sample */
    bool                  spare; /* one shot more is drawn, and the document's own row left out */
    bool                  detokenize; /* the text is a page of WikiText */
    enum tsr_tasks_metric metrics[TSR_TASKS_METRICS];
    uint64_t              n_metrics;
};

/* From text; name: of the file.  Errors with line and column go to d.  [setup] */
tsr_status tsr_tasks_read(struct tsr_tasks_task **t, const char *name, const char *text,
                          uint64_t len, struct tsr_diag *d, struct tsr_err *err);
/* A task by its name, built in or installed by the user (base/user.h), or the file of a path that ends with .yaml.  TSR_E_INPUT for an unknown name lists
 * those that are known.  [setup] */
tsr_status tsr_tasks_open(struct tsr_tasks_task **t, const char *name, struct tsr_diag *d,
                          struct tsr_err *err);
void       tsr_tasks_destroy(struct tsr_tasks_task *t);
bool       tsr_tasks_is_file(const char *name);
bool       tsr_tasks_is_built_in(const char *name);

#endif
