/* report: the results of the earlier steps as one standalone HTML page. */
#include "report/report.h"
#include "base/mem.h"
#include "base/output.h"
#include "pipeline/step.h"

#include <stdlib.h>
#include <string.h>

struct report_options {
    const char *html;
};

static const struct tsr_option options[] = {
    { .name = "html",
      .help = "File to write, in the job folder.",
      .type = TSR_OPT_STRING,
      .unit = "FILE",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct report_options, html, const char *),
      .def = { .s = "" } },
};

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct report_options  *o = opts;
    const struct tsr_config_node *at = tsr_config_node_get(node, "html");
    (void)job;
    (void)err;
    if (at && !o->html[0])
        tsr_config_diag_error(d, &at->mark, "html: report.html", "'html' is empty");
    return TSR_OK;
}

/* "configs/ab/../demo" as people write it: "configs/demo". */
static void shorten(char *path)
{
    char *up;
    while ((up = strstr(path, "/../"))) {
        char *from = up;
        while (from > path && from[-1] != '/')
            from--;
        if (from == up || strncmp(from, "../", 3) == 0)
            return;
        memmove(from, up + 4, strlen(up + 4) + 1);
    }
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct report_options *o = opts;
    char                        *path = NULL;
    struct tsr_writer            w;
    char                        *model = tsr_strdup(job->model_path);
    struct tsr_report_head       head = { .model = model, .seed = job->seed };
    (void)node;
    if (!model)
        return tsr_fail_nomem(err, strlen(job->model_path), "a path");
    shorten(model);
    if (job->model) {
        head.family = job->model->family;
        head.hash = job->model->hash;
        head.parameters = job->model->parameters;
    }
    tsr_status st = tsr_pipeline_job_output(job, o->html, &path, err);
    if (st == TSR_OK)
        st = tsr_writer_open(&w, path, err);
    if (st == TSR_OK) {
        tsr_report_page(&w, &head, job->results);
        st = tsr_writer_commit(&w, err);
    }
    free(path);
    free(model);
    if (st != TSR_OK)
        return st;
    json_t *j = json_object();
    if (!tsr_pipeline_json_put_text(j, "html", o->html)) {
        json_decref(j);
        j = NULL;
    }
    return tsr_pipeline_step_result(job, "report", j, err);
}

const struct tsr_pipeline_step tsr_step_report = {
    .name = "report",
    .summary = "writes what the steps before found as an HTML page",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct report_options),
    .check = check,
    .run = run,
    .later = true,
};
