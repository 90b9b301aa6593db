#include "cli/failure.h"
#include "cli/jobs.h"
#include "pipeline/job.h"

#include <jansson.h>
#include <string.h>

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_GITHUB };

struct config_options {
    int64_t format;
    int32_t origin;
};

static const struct tsr_choice formats[] = {
    { "text", "for people, on standard error", FORMAT_TEXT },
    { "json", "a list of errors on standard output", FORMAT_JSON },
    { "github", "annotations of GitHub Actions on standard output", FORMAT_GITHUB },
};
static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct config_options, format, FORMAT_TEXT, formats,
                    "check: form of the errors"),
    TSR_OPTION_BOOL(struct config_options, origin, 0, "show: where each value comes from"),
};

/* ---- check ----------------------------------------------------------------------- */

/* A file that cannot be read has no diagnostics, only a sentence. */
static tsr_status load_and_check(struct tsr_cli *c, const char *path, struct tsr_pipeline_job **job,
                                 struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_pipeline_job_options jo = { .sets = c->sets,
                                           .n_sets = c->n_sets,
                                           .threads = c->threads };
    tsr_status                      st = tsr_pipeline_job_load(job, path, &jo, d, err);
    if (st == TSR_OK)
        st = tsr_cli_check_job(c, *job, d, err);
    if (st == TSR_E_INPUT && tsr_config_diag_errors(d))
        return TSR_OK;
    return st;
}

/* Workflow commands end at a line break and treat '%' as the escape. */
static void github_text(const char *s, bool property)
{
    for (; *s; s++) {
        if (*s == '%' || *s == '\r' || *s == '\n' || (property && (*s == ':' || *s == ',')))
            (void)printf("%%%02X", (unsigned char)*s);
        else
            (void)putchar(*s);
    }
}

static void print_github(const struct tsr_config_diag_item *v)
{
    (void)printf("::%s file=", v->warning ? "warning" : "error");
    github_text(v->file, true);
    (void)printf(",line=%u,col=%u::", v->line, v->column);
    github_text(v->text, false);
    if (v->hint) {
        (void)fputs("; ", stdout);
        github_text(v->hint, false);
    }
    (void)putchar('\n');
}

static tsr_status report(struct tsr_cli *c, const char *path, enum format format, json_t *list,
                         struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_config_diag_item v;
    tsr_status                  st = tsr_config_diag_status(d, err);
    if (st != TSR_OK && st != TSR_E_INPUT)
        return st;
    if (format == FORMAT_TEXT) {
        tsr_config_diag_print(d, stderr, c->colour);
        if (!tsr_config_diag_errors(d))
            (void)printf("%s: ok\n", path);
        return TSR_OK;
    }
    for (uint64_t i = 0; tsr_config_diag_at(d, i, &v); i++) {
        if (format == FORMAT_GITHUB)
            print_github(&v);
        else if (json_array_append_new(list, tsr_cli_failure_item(&v)) != 0)
            return tsr_fail_nomem(err, 256, "the list of errors");
    }
    return TSR_OK;
}

static tsr_status check_file(struct tsr_cli *c, const char *path, enum format format, json_t *list,
                             uint64_t *errors, struct tsr_err *err)
{
    struct tsr_diag         *d = NULL;
    struct tsr_pipeline_job *job = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = load_and_check(c, path, &job, d, &e.err);
    if (st == TSR_E_INPUT) { /* not readable: one more error, and on to the next file */
        tsr_config_diag_failure(d, NULL, &e.err);
        st = TSR_OK;
    } else if (st != TSR_OK) {
        (void)tsr_err_copy(err, st, &e.err);
    }
    if (st == TSR_OK)
        st = report(c, path, format, list, d, err);
    *errors += tsr_config_diag_errors(d);
    tsr_pipeline_job_destroy(job);
    tsr_config_diag_destroy(d);
    return st;
}

static tsr_status check(struct tsr_cli *c, enum format format, char **files, int n,
                        struct tsr_err *err)
{
    json_t    *list = json_array();
    uint64_t   errors = 0;
    tsr_status st = list ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "out of memory: a list");
    for (int i = 0; i < n && st == TSR_OK; i++)
        st = check_file(c, files[i], format, list, &errors, err);
    if (st == TSR_OK && format == FORMAT_JSON)
        st = tsr_cli_print_json(json_incref(list), err);
    json_decref(list);
    TSR_TRY(st);
    TSR_TRY(tsr_cli_flush(err));
    if (errors == 0)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT, "%llu error%s in %d file%s", (unsigned long long)errors,
                    errors == 1 ? "" : "s", n, n == 1 ? "" : "s");
}

/* ---- show and schema ---------------------------------------------------------------- */

static tsr_status show(struct tsr_cli *c, const char *path, bool origin, struct tsr_err *err)
{
    struct tsr_diag         *d = NULL;
    struct tsr_pipeline_job *job = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = load_and_check(c, path, &job, d, err);
    if (st == TSR_OK)
        st = tsr_cli_diag(c, d, path, err);
    if (st == TSR_OK && c->json)
        st = tsr_cli_print_json(tsr_config_node_json(tsr_config_doc_root(job->doc)), err);
    else if (st == TSR_OK)
        tsr_config_node_print(tsr_config_doc_root(job->doc), stdout, origin);
    tsr_pipeline_job_destroy(job);
    tsr_config_diag_destroy(d);
    TSR_TRY(st);
    return tsr_cli_flush(err);
}

static tsr_status schema_unknown(struct tsr_registry *r, const char *name, struct tsr_err *err)
{
    const char *names[64], *external;
    uint64_t    n = 0;
    for (; n < tsr_n_steps && n < 63; n++)
        names[n] = tsr_steps[n]->name;
    for (uint64_t i = 0; n < 63 && (external = tsr_pipeline_external_name(r, i)); i++)
        names[n++] = external;
    names[n++] = "job";
    const char *near = tsr_config_nearest(name, names, n);
    return tsr_fail(err, TSR_E_INPUT, "there is no schema of '%s'; %s%s%s", name,
                    near ? "did you mean '" : "name 'job' or a step", near ? near : "",
                    near ? "'?" : "");
}

static tsr_status schema(struct tsr_cli *c, const char *name, struct tsr_err *err)
{
    struct tsr_registry          *r;
    struct tsr_pipeline_external *x;
    json_t                       *j;
    if (name && tsr_pipeline_step_find(name))
        return tsr_cli_print_json(tsr_cli_schema_step(tsr_pipeline_step_find(name)), err);
    TSR_TRY(tsr_cli_registry(c, &r, err));
    if (!name || strcmp(name, "job") == 0) {
        TSR_TRY(tsr_cli_schema_job(r, &j, err));
        return tsr_cli_print_json(j, err);
    }
    TSR_TRY(tsr_pipeline_external_find(&x, r, name, err));
    if (!x)
        return schema_unknown(r, name, err);
    j = tsr_cli_schema_step(tsr_pipeline_external_step(x));
    tsr_pipeline_external_destroy(x);
    return tsr_cli_print_json(j, err);
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    static const char *const     what[] = { "check", "show", "schema" };
    const struct config_options *o = opts;
    if (strcmp(args[0], "check") == 0) {
        if (n_args < 2)
            return tsr_fail(err, TSR_E_INPUT, "config check needs a FILE");
        return check(c, c->json ? FORMAT_JSON : (enum format)o->format, args + 1, n_args - 1, err);
    }
    if (strcmp(args[0], "show") == 0) {
        if (n_args != 2)
            return tsr_fail(err, TSR_E_INPUT, "config show needs one FILE");
        return show(c, args[1], o->origin != 0, err);
    }
    if (strcmp(args[0], "schema") == 0) {
        if (n_args > 2)
            return tsr_fail(err, TSR_E_INPUT, "config schema takes one name, not '%s' too",
                            args[2]);
        return schema(c, n_args == 2 ? args[1] : NULL, err);
    }
    const char *near = tsr_config_nearest(args[0], what, 3);
    return tsr_fail(err, TSR_E_INPUT, "config does check, show and schema, not '%s'%s%s%s", args[0],
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const struct tsr_verb tsr_verb_config = {
    .name = "config",
    .summary = "checks and shows job files",
    .args = "check FILE... | show FILE | schema [job|STEP]",
    .min_args = 1,
    .max_args = -1,
    .details = "check   says every error of each file, with the options of the plugins it names\n"
               "show    prints the job with its overrides and defaults\n"
               "schema  prints JSON Schema for editors",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct config_options),
    .run = run,
    .jobs = true,
};
