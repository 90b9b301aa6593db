/* tessera journal: what is in the journal of a batch, also while it runs. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "batch/journal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A folder stands for the journal in it, an output for the folder beside it. */
static tsr_status place(const char *arg, char **path, struct tsr_err *err)
{
    if (tsr_path_is_dir(arg)) {
        *path = tsr_path_join(arg, "journal");
        return *path ? TSR_OK : tsr_fail_nomem(err, strlen(arg), "a path");
    }
    uint64_t n = strlen(arg) + 13;
    *path = tsr_new(n, 1);
    if (!*path)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(*path, n, "%s.job/journal", arg);
    if (!tsr_path_exists(*path))
        (void)snprintf(*path, n, "%s", arg);
    return TSR_OK;
}

static tsr_status show(const struct tsr_cli *c, const struct tsr_journal_view *v,
                       struct tsr_err *err)
{
    const struct tsr_journal_counts *n = &v->counts;
    if (c->json)
        return tsr_cli_print_json(
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "format",
                      "tessera.journal-state/1", "job", v->job, "lines", (json_int_t)n->done,
                      "errors", (json_int_t)n->errors, "starts", (json_int_t)n->starts, "epoch",
                      (json_int_t)n->epoch, "stale", (json_int_t)n->stale, "doubled",
                      (json_int_t)n->doubled, "unlike", (json_int_t)n->unlike, "bytes",
                      (json_int_t)v->size, "sealed", v->seal[0] != '\0', "damaged", v->damaged),
            err);
    (void)printf("job      %s\nlines    %llu, %llu of them errors\nstarts   %llu\n", v->job,
                 (unsigned long long)n->done, (unsigned long long)n->errors,
                 (unsigned long long)n->starts);
    if (n->stale || n->doubled)
        (void)printf("refused  %llu frames of runs that were over, %llu lines that were there "
                     "already (%llu with other bytes)\n",
                     (unsigned long long)n->stale, (unsigned long long)n->doubled,
                     (unsigned long long)n->unlike);
    (void)printf("state    %s\n", v->damaged         ? "damaged; see 'tessera journal repair'"
                                  : v->end < v->size ? "unfinished, with a torn end"
                                  : v->seal[0]       ? "sealed: the output is whole"
                                                     : "unfinished");
    if (v->damaged)
        (void)printf("damage   byte %llu to %llu\n", (unsigned long long)v->end,
                     (unsigned long long)v->next);
    return tsr_cli_flush(err);
}

static tsr_status export_lines(const struct tsr_journal_view *v, struct tsr_err *err)
{
    for (uint64_t i = 0; i < v->n; i++) {
        char *line;
        if (v->records[i].state == TSR_RECORD_OPEN)
            continue;
        TSR_TRY(tsr_journal_view_line(v, i, &line, err));
        bool ok = puts(line) >= 0;
        free(line);
        if (!ok)
            break; /* said by the flush */
    }
    return tsr_cli_flush(err);
}

static tsr_status repair(const struct tsr_cli *c, const struct tsr_journal_view *v,
                         const char *path, struct tsr_err *err)
{
    uint64_t kept, lost, n = strlen(path) + 10;
    if (!v->damaged) {
        if (!c->quiet)
            (void)fprintf(stderr, "tessera: %s: is not damaged; nothing to do\n", path);
        return TSR_OK;
    }
    char *to = tsr_new(n, 1);
    if (!to)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(to, n, "%s.repaired", path);
    tsr_status st = tsr_journal_salvage(v, path, to, &kept, &lost, err);
    if (st == TSR_OK)
        (void)
            printf("%s: %llu frames with %llu lines are saved, %llu bytes are not frames; move it "
                   "in place of %s to go on\n",
                   to, (unsigned long long)kept, (unsigned long long)v->counts.done,
                   (unsigned long long)lost, path);
    free(to);
    return st == TSR_OK ? tsr_cli_flush(err) : st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct tsr_journal_view v;
    char                   *path = NULL;
    const char             *what = args[0];
    (void)opts;
    (void)n_args;
    if (strcmp(what, "show") != 0 && strcmp(what, "export") != 0 && strcmp(what, "repair") != 0)
        return tsr_fail(err, TSR_E_INPUT, "'%s' is not one of show, export and repair", what);
    TSR_TRY(place(args[1], &path, err));
    tsr_status st = tsr_journal_look(&v, &tsr_io_system, path, err);
    if (st == TSR_OK) {
        st = *what == 's'   ? show(c, &v, err)
             : *what == 'e' ? export_lines(&v, err)
                            : repair(c, &v, path, err);
        tsr_journal_look_end(&v);
    }
    free(path);
    return st;
}

const struct tsr_verb tsr_verb_journal = {
    .name = "journal",
    .summary = "shows, exports or repairs the journal of a batch",
    .args = "show|export|repair OUTPUT|FOLDER|FILE",
    .min_args = 2,
    .max_args = 2,
    .details = "show counts what is there; export prints the lines that are done, in order of the\n"
               "input, also while the batch runs; repair writes every good frame of a damaged\n"
               "journal into FILE.repaired. None of them changes the journal itself.",
    .run = run,
};
