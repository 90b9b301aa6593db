#include "pipeline/tasks.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "pipeline/job.h"
#include "pipeline/put.h"

#include <stdlib.h>
#include <string.h>

struct one {
    struct tsr_tasks_task   *task;
    struct tsr_tasks_rows    rows, from;
    struct tsr_tasks_reader *reader;
    struct tsr_tasks_result  result;
    uint64_t                 shots;
};
struct tsr_pipeline_tasks {
    struct tsr_pipeline_job              *job;
    struct one                           *v;
    uint64_t                              n;
    const struct tsr_pipeline_tasks_keys *k;
    struct tsr_eval_encoding              how;
};

/* ---- names -------------------------------------------------------------------------- */

static uint64_t count_names(const struct tsr_config_node *n)
{
    uint64_t count = 1;
    if (n->kind == TSR_CONFIG_NODE_LIST)
        return n->n;
    for (const char *s = n->text; (s = strchr(s, ',')) != NULL; s++)
        count++;
    return count;
}

/* The i-th name of a list, or of "a,b" on the command line; fresh memory, NULL: there is none. */
static char *name_at(const struct tsr_config_node *n, uint64_t i)
{
    if (n->kind == TSR_CONFIG_NODE_LIST)
        return tsr_strdup(n->items[i]->text);
    const char *s = n->text;
    for (; i > 0; i--)
        s = strchr(s, ',') + 1;
    return tsr_strndup(s, strcspn(s, ","));
}

static tsr_status open_task(const struct tsr_pipeline_job *job, const char *name,
                            struct tsr_tasks_task **t, struct tsr_diag *d, struct tsr_err *err)
{
    char *path = tsr_tasks_is_file(name) ? tsr_pipeline_job_input(job, name) : tsr_strdup(name);
    if (!path)
        return tsr_fail_nomem(err, strlen(name), "a task");
    tsr_status st = tsr_tasks_open(t, path, d, err);
    free(path);
    return st;
}

/* Whether the list holds names alone. */
static bool are_names(const struct tsr_config_node *n)
{
    bool ok = n->kind == TSR_CONFIG_NODE_SCALAR || (n->kind == TSR_CONFIG_NODE_LIST && n->n);
    for (uint64_t i = 0; ok && i < n->n; i++)
        ok = n->items[i]->kind == TSR_CONFIG_NODE_SCALAR;
    return ok;
}

static bool is_listed(const struct tsr_pipeline_tasks *t, const struct tsr_tasks_task *task)
{
    for (uint64_t i = 0; i < t->n; i++)
        if (strcmp(t->v[i].task->name, task->name) == 0)
            return true;
    return false;
}

static tsr_status read_names(struct tsr_pipeline_tasks *t, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *n = t->k->tasks;
    for (uint64_t i = 0; i < count_names(n); i++) {
        struct tsr_errbuf             e = TSR_ERRBUF(e);
        const struct tsr_config_node *at = n->kind == TSR_CONFIG_NODE_LIST ? n->items[i] : n;
        uint64_t                      before = tsr_config_diag_errors(d);
        struct tsr_tasks_task        *task = NULL;
        char                         *name = name_at(n, i);
        tsr_status                    st =
            name ? open_task(t->job, name, &task, d, &e.err) : tsr_fail_nomem(&e.err, 64, "a task");
        free(name);
        if (st == TSR_E_NOMEM)
            return tsr_err_copy(err, st, &e.err);
        if (st == TSR_OK && !is_listed(t, task)) {
            t->v[t->n++].task = task;
            continue;
        }
        if (st == TSR_OK)
            tsr_config_diag_error(d, &at->mark, NULL, "task '%.100s' is listed twice", task->name);
        else if (tsr_config_diag_errors(d) == before)
            tsr_config_diag_failure(d, &at->mark, &e.err);
        tsr_tasks_destroy(task);
    }
    return TSR_OK;
}

tsr_status tsr_pipeline_tasks_read(struct tsr_pipeline_tasks **out, struct tsr_pipeline_job *job,
                                   const struct tsr_pipeline_tasks_keys *k,
                                   const struct tsr_config_node *node, struct tsr_diag *d,
                                   struct tsr_err *err)
{
    struct tsr_pipeline_tasks *t;
    *out = NULL;
    if (!k->tasks) {
        if (*k->data || *k->fewshot_data || k->shots != -1)
            tsr_config_diag_error(d, &node->mark, NULL,
                                  "'data', 'fewshot_data' and 'shots' are about 'tasks'");
        return TSR_OK;
    }
    if (!are_names(k->tasks)) {
        tsr_config_diag_error(d, &k->tasks->mark, "as in [arc_easy, hellaswag]",
                              "'tasks' must be a list of names");
        return TSR_OK;
    }
    t = tsr_new(1, sizeof *t);
    if (t)
        t->v = tsr_new(count_names(k->tasks), sizeof *t->v);
    if (!t || !t->v) {
        free(t);
        return tsr_fail_nomem(err, count_names(k->tasks) * sizeof *t->v, "tasks");
    }
    t->job = job;
    t->k = k;
    tsr_status st = read_names(t, d, err);
    if (st != TSR_OK) {
        tsr_pipeline_tasks_close(t);
        return st;
    }
    *out = t;
    return TSR_OK;
}

/* ---- rows --------------------------------------------------------------------------- */

/* The file goes into the manifest. */
static void note(const struct tsr_pipeline_job *job, const struct tsr_tasks_rows *rows)
{
    char *full = realpath(rows->path, NULL);
    if (full)
        free(tsr_pipeline_job_input(job, full));
    free(full);
}

/* The rows that shots come from, if they are not those of the questions. */
static tsr_status open_shots(struct tsr_pipeline_tasks *t, struct one *o, const char *folder,
                             struct tsr_err *err)
{
    const struct tsr_tasks_task *task = o->task;
    tsr_status                   st;
    if (*t->k->fewshot_data) {
        char *path = tsr_path_join(t->job->state->dir, t->k->fewshot_data);
        st = path ? tsr_tasks_rows_file(&o->from, path, err) : tsr_fail_nomem(err, 64, "a path");
        free(path);
    } else if (!*task->shot_split) {
        st = tsr_fail(err, TSR_E_INPUT, "task '%s' names no split for shots", task->name);
    } else {
        st = tsr_tasks_rows_find(&o->from, task, task->shot_split, folder, err);
    }
    if (st == TSR_OK)
        note(t->job, &o->from);
    return st;
}

static tsr_status open_rows(struct tsr_pipeline_tasks *t, struct one *o, const char *folder,
                            struct tsr_err *err)
{
    const struct tsr_tasks_task *task = o->task;
    bool same = !*t->k->fewshot_data && strcmp(task->split, task->shot_split) == 0;
    TSR_TRY(tsr_tasks_rows_find(&o->rows, task, task->split, folder, err));
    note(t->job, &o->rows);
    if (o->shots && !same)
        TSR_TRY(open_shots(t, o, folder, err));
    return tsr_tasks_reader_create(&o->reader, task, &o->rows,
                                   !o->shots ? NULL
                                   : same    ? &o->rows
                                             : &o->from,
                                   o->shots, err);
}

static tsr_status open_one(struct tsr_pipeline_tasks *t, struct one *o, uint64_t *context,
                           struct tsr_err *err)
{
    uint64_t own = 0;
    o->shots = (uint64_t)(t->k->shots < 0 ? o->task->shots : t->k->shots);
    char *folder = *t->k->data ? tsr_path_join(t->job->state->dir, t->k->data) : tsr_strdup("");
    tsr_status st = folder ? open_rows(t, o, folder, err) : tsr_fail_nomem(err, 64, "a path");
    free(folder);
    if (st == TSR_OK)
        st = tsr_tasks_context(o->reader, o->task, &t->how, &own, err);
    *context = own > *context ? own : *context;
    return st;
}

tsr_status tsr_pipeline_tasks_open(struct tsr_pipeline_tasks *t, bool no_bos, uint64_t *context,
                                   struct tsr_err *err)
{
    t->how = (struct tsr_eval_encoding){ .tokenizer = t->job->tokenizer,
                                         .model = t->job->model,
                                         .no_bos = no_bos };
    *context = 0;
    for (uint64_t i = 0; i < t->n; i++)
        TSR_TRY(open_one(t, &t->v[i], context, err));
    return TSR_OK;
}

void tsr_pipeline_tasks_close(struct tsr_pipeline_tasks *t)
{
    if (!t)
        return;
    for (uint64_t i = 0; i < t->n; i++) {
        tsr_tasks_result_free(&t->v[i].result);
        tsr_tasks_reader_destroy(t->v[i].reader);
        tsr_tasks_rows_free(&t->v[i].rows);
        tsr_tasks_rows_free(&t->v[i].from);
        tsr_tasks_destroy(t->v[i].task);
    }
    free(t->v);
    free(t);
}

/* ---- running ------------------------------------------------------------------------ */

static tsr_status run_all(struct tsr_pipeline_tasks *t, struct tsr_engine *e,
                          struct tsr_writer *log, struct tsr_err *err)
{
    for (uint64_t i = 0; i < t->n; i++) {
        struct one *o = &t->v[i];
        tsr_tasks_result_free(&o->result);
        TSR_TRY(tsr_tasks_run(o->reader, o->task, e, &t->how, log, &o->result, err));
        if (o->result.cut)
            tsr_logf(TSR_LOG_WARN,
                     "%s: %llu of %llu requests are longer than the %llu positions and lost tokens "
                     "from their front",
                     o->task->name, (unsigned long long)o->result.cut,
                     (unsigned long long)o->result.requests,
                     (unsigned long long)tsr_engine_context(e));
    }
    return TSR_OK;
}

tsr_status tsr_pipeline_tasks_run(struct tsr_pipeline_tasks *t, struct tsr_engine *e,
                                  const char *log_samples, struct tsr_err *err)
{
    struct tsr_writer log = { 0 };
    char             *path = NULL;
    if (!*log_samples)
        return run_all(t, e, NULL, err);
    TSR_TRY(tsr_pipeline_job_output(t->job, log_samples, &path, err));
    tsr_status st = tsr_writer_open(&log, path, err);
    free(path);
    TSR_TRY(st);
    st = run_all(t, e, &log, err);
    if (st == TSR_OK)
        st = tsr_writer_commit(&log, err);
    tsr_writer_abort(&log);
    return st;
}

uint64_t tsr_pipeline_tasks_count(const struct tsr_pipeline_tasks *t)
{
    return t ? t->n : 0;
}

const struct tsr_tasks_task *tsr_pipeline_tasks_task(const struct tsr_pipeline_tasks *t, uint64_t i)
{
    return t->v[i].task;
}

const struct tsr_tasks_result *tsr_pipeline_tasks_result(const struct tsr_pipeline_tasks *t,
                                                         uint64_t                         i)
{
    return &t->v[i].result;
}

uint64_t tsr_pipeline_tasks_rows(const struct tsr_pipeline_tasks *t, uint64_t i)
{
    return tsr_tasks_reader_rows(t->v[i].reader);
}

/* ---- results ------------------------------------------------------------------------ */

static bool put_metrics(json_t *j, const struct tsr_tasks_task *t,
                        const struct tsr_tasks_summary *s)
{
    bool ok = true;
    for (uint64_t k = 0; k < t->n_metrics; k++) {
        char        error[64];
        const char *name = tsr_tasks_metric_name(t->metrics[k]);
        (void)snprintf(error, sizeof error, "%s_stderr", name);
        ok = ok && tsr_pipeline_json_put_real(j, name, s->metric[k].value) &&
             tsr_pipeline_json_put_real(j, error, s->metric[k].stderr_value);
    }
    return ok;
}

static json_t *groups_json(const struct one *o)
{
    json_t *j = json_object();
    for (uint64_t g = 0; j && g < tsr_tasks_reader_groups(o->reader); g++) {
        json_t *one = json_object();
        bool    ok = one &&
                  tsr_pipeline_json_put_int(one, "documents", o->result.group[g].documents) &&
                  put_metrics(one, o->task, &o->result.group[g]);
        if (!tsr_pipeline_json_put(j, tsr_tasks_reader_group(o->reader, g), one) || !ok) {
            json_decref(j);
            return NULL;
        }
    }
    return j;
}

/* What a task asks. */
static json_t *of_json(const struct tsr_pipeline_tasks *t, const struct one *o, bool files)
{
    json_t *j = json_object();
    bool    ok = j && tsr_pipeline_json_put_int(j, "documents", tsr_tasks_reader_rows(o->reader)) &&
              tsr_pipeline_json_put_int(j, "shots", o->shots) &&
              tsr_pipeline_json_put(j, "add_bos", json_boolean(!t->how.no_bos)) &&
              tsr_pipeline_json_put_text(j, "data_set", o->task->dataset) &&
              (!files || tsr_pipeline_json_put_text(j, "file", o->rows.path)) &&
              tsr_pipeline_json_put_text(j, "file_hash", o->rows.hash) &&
              tsr_pipeline_json_put_text(j, "shots_hash", o->from.list ? o->from.hash : NULL) &&
              tsr_pipeline_json_put_text(j, "task_hash", o->task->hash);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static json_t *one_json(const struct tsr_pipeline_tasks *t, const struct one *o)
{
    json_t *j = json_object(), *of = of_json(t, o, true);
    bool    ok = j && of && tsr_pipeline_json_put_int(j, "n", o->result.all.documents) &&
              tsr_pipeline_json_put_int(j, "documents", o->result.all.documents) &&
              tsr_pipeline_json_put_int(j, "shots", o->shots) &&
              put_metrics(j, o->task, &o->result.all) &&
              (!o->result.group || tsr_pipeline_json_put(j, o->task->by, groups_json(o))) &&
              tsr_pipeline_json_put_int(j, "requests", o->result.requests) &&
              tsr_pipeline_json_put_int(j, "cut", o->result.cut) &&
              tsr_pipeline_json_put_int(j, "tokens_run", o->result.tokens_run) &&
              tsr_pipeline_json_put_int(j, "tokens_shared", o->result.tokens_shared) &&
              json_object_update(j, of) == 0;
    json_decref(of);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

json_t *tsr_pipeline_tasks_of(const struct tsr_pipeline_tasks *t, bool files)
{
    json_t *j = json_object();
    for (uint64_t i = 0; i < t->n; i++)
        tsr_json_set(&j, t->v[i].task->name, of_json(t, &t->v[i], files));
    return j;
}

json_t *tsr_pipeline_tasks_json(const struct tsr_pipeline_tasks *t)
{
    json_t *j = json_object();
    for (uint64_t i = 0; j && i < t->n; i++)
        if (!tsr_pipeline_json_put(j, t->v[i].task->name, one_json(t, &t->v[i]))) {
            json_decref(j);
            return NULL;
        }
    return j;
}

void tsr_pipeline_tasks_print(const json_t *tasks, FILE *to)
{
    const char   *name;
    const json_t *one;
    json_object_foreach ((json_t *)(uintptr_t)tasks, name, one) {
        (void)fprintf(to, "%s: %lld documents, %lld shots", name,
                      (long long)json_integer_value(json_object_get(one, "documents")),
                      (long long)json_integer_value(json_object_get(one, "shots")));
        for (unsigned m = 0; m < TSR_TASKS_METRICS; m++) {
            char          error[64];
            const char   *metric = tsr_tasks_metric_name((enum tsr_tasks_metric)m);
            const json_t *v = json_object_get(one, metric);
            (void)snprintf(error, sizeof error, "%s_stderr", metric);
            const json_t *e = json_object_get(one, error);
            if (v)
                (void)fprintf(to, ", %s %.6g", metric, json_number_value(v));
            if (json_is_number(e))
                (void)fprintf(to, " (stderr %.4g)", json_number_value(e));
        }
        (void)fputc('\n', to);
    }
}
