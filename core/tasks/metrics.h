/* tasks/metrics.h - metrics of a task from the log-likelihoods of its documents. */
#ifndef TSR_TASKS_METRICS_H
#define TSR_TASKS_METRICS_H

#include "eval/likelihood.h"
#include "tasks/documents.h"

struct tsr_tasks_value {
    double value, stderr_value; /* stderr_value NaN: there is none */
};
/* Of one group, or of all documents. */
struct tsr_tasks_summary {
    uint64_t               documents;
    struct tsr_tasks_value metric[TSR_TASKS_METRICS]; /* by place in the task's list */
};

/* Whether a metric is a share of right answers, of which more is better: its marks are 0 or 1.  Of the others less is
 * better. */
bool tsr_tasks_metric_is_share(enum tsr_tasks_metric m);
/* The metric from the weighted mean of its marks. */
typedef double (*tsr_tasks_metric_fn)(double mean);
tsr_tasks_metric_fn tsr_tasks_metric_of(enum tsr_tasks_metric m);

/* What each document counts. */
struct tsr_tasks_marks {
    const struct tsr_tasks_task *t;
    double   *mark;   /* [documents][n_metrics]: 0 or 1, or a log-likelihood; owned */
    double   *weight; /* [documents][n_metrics]: words or bytes; 1 elsewhere; owned */
    uint64_t *group;  /* [documents]; owned */
    uint64_t  n, cap;
};
tsr_status tsr_tasks_marks_create(struct tsr_tasks_marks **m, const struct tsr_tasks_task *t,
                                  uint64_t documents, struct tsr_err *err);
void       tsr_tasks_marks_destroy(struct tsr_tasks_marks *m);
/* The next document, with the likelihoods of its requests. */
void tsr_tasks_marks_add(struct tsr_tasks_marks *m, const struct tsr_tasks_document *d,
                         const struct tsr_eval_likelihood *l);
/* Over the documents of a group, UINT64_MAX: over all, where groups > 1 pools the groups' standard errors by their
 * sizes. */
tsr_status tsr_tasks_marks_summarize(const struct tsr_tasks_marks *m, uint64_t group,
                                     uint64_t groups, struct tsr_tasks_summary *out,
                                     struct tsr_err *err);

#endif
