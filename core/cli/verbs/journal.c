/* tessera journal: shows the journal of a batch, also while the batch runs. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "batch/adopt.h"
#include "batch/journal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct journal_options {
    const char *input;
};

static const struct tsr_option options[] = {
    TSR_OPTION_PATH(struct journal_options, input, "", "FILE",
                    "file of requests of the batch: check and repair compare custom_ids with it"),
};

/* A folder means the journal in it; an output means the journal in its OUTPUT.job folder. */
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

static tsr_status show(const struct tsr_cli *c, const struct tsr_batch_journal_view *v,
                       struct tsr_err *err)
{
    const struct tsr_batch_journal_counts *n = &v->counts;
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

static tsr_status export_lines(const struct tsr_batch_journal_view *v, struct tsr_err *err)
{
    for (uint64_t i = 0; i < v->n; i++) {
        char *line;
        if (v->records[i].state == TSR_BATCH_RECORD_OPEN)
            continue;
        TSR_TRY(tsr_batch_journal_view_line(v, i, &line, err));
        bool ok = puts(line) >= 0;
        free(line);
        if (!ok)
            break; /* reported by the flush */
    }
    return tsr_cli_flush(err);
}

/* Checks every line as a resumed batch does: everything that can be checked without the model, and with
 * the file of requests the custom_ids too. bad [v->n], or NULL. */
static tsr_status look_at(const struct tsr_batch_journal_view *v, const char *path,
                          const char *input, unsigned char *bad, uint64_t *n, struct tsr_err *why,
                          struct tsr_err *err)
{
    struct tsr_batch_records r = { .file = { .fd = -1 } };
    struct tsr_batch_adopt   a = { 0 };
    uint64_t                 first = 0, last = 0;
    if (*input) {
        if (!tsr_batch_adopt_stretch(v->about, &first, &last))
            return tsr_fail(err, TSR_E_INPUT, "%s: its header does not say which records it is of",
                            path);
        TSR_TRY(tsr_batch_records_open(&r, input, 0, 1, 1, err));
        if (last > r.lines || v->n > last - first + 1) {
            tsr_status st =
                tsr_fail(err, TSR_E_INPUT,
                         "%s: has %llu lines, and %s is of lines %llu to %llu; give the "
                         "input of this batch",
                         input, (unsigned long long)r.lines, path, (unsigned long long)first,
                         (unsigned long long)last);
            tsr_batch_records_close(&r);
            return st;
        }
        r.first = first - 1;
        r.n = last - first + 1;
        a.records = &r;
    }
    tsr_status st =
        tsr_batch_journal_view_check(v, path, tsr_batch_adopt_check, &a, bad, n, why, err);
    if (*input)
        tsr_batch_records_close(&r);
    return st;
}

static tsr_status check(const struct tsr_batch_journal_view *v, const char *path, const char *input,
                        struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    uint64_t          n = 0;
    if (v->damaged)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: is damaged from byte %llu to %llu; 'tessera journal repair' saves what is "
            "left",
            path, (unsigned long long)v->end, (unsigned long long)v->next);
    TSR_TRY(look_at(v, path, input, NULL, &n, &why.err, err));
    if (n)
        return tsr_err_copy(err, TSR_E_INPUT, &why.err);
    (void)printf("%s: %llu lines, all as they should be%s\n", path,
                 (unsigned long long)v->counts.done,
                 *input ? "" : " (their requests: with --input)");
    return tsr_cli_flush(err);
}

static tsr_status salvage(const struct tsr_cli *c, const struct tsr_batch_journal_view *v,
                          const char *path, const unsigned char *bad, uint64_t n_bad,
                          struct tsr_err *err)
{
    uint64_t kept, lost, n = strlen(path) + 10;
    if (!v->damaged && !n_bad) {
        if (!c->quiet)
            (void)fprintf(stderr, "tessera: %s: is not damaged; nothing to do\n", path);
        return TSR_OK;
    }
    char *to = tsr_new(n, 1);
    if (!to)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(to, n, "%s.repaired", path);
    tsr_status st = tsr_batch_journal_salvage(v, path, to, bad, &kept, &lost, err);
    if (st == TSR_OK)
        (void)printf(
            "%s: %llu frames with %llu lines are saved, %llu bytes are not frames, %llu lines "
            "are no answers; move it in place of %s to go on\n",
            to, (unsigned long long)kept, (unsigned long long)(v->counts.done - n_bad),
            (unsigned long long)lost, (unsigned long long)n_bad, path);
    free(to);
    return st == TSR_OK ? tsr_cli_flush(err) : st;
}

static tsr_status repair(const struct tsr_cli *c, const struct tsr_batch_journal_view *v,
                         const char *path, const char *input, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    uint64_t          n = 0;
    unsigned char    *bad = tsr_new(v->n + 1, 1);
    if (!bad)
        return tsr_fail_nomem(err, v->n, "the records of a batch");
    tsr_status st = look_at(v, path, input, bad, &n, &why.err, err);
    if (st == TSR_OK && n && !c->quiet)
        (void)fprintf(stderr, "tessera: %s\n", why.text);
    if (st == TSR_OK)
        st = salvage(c, v, path, bad, n, err);
    free(bad);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct journal_options *o = opts;
    struct tsr_batch_journal_view v;
    char                         *path = NULL;
    const char                   *what = args[0];
    (void)n_args;
    if (strcmp(what, "show") != 0 && strcmp(what, "check") != 0 && strcmp(what, "export") != 0 &&
        strcmp(what, "repair") != 0)
        return tsr_fail(err, TSR_E_INPUT, "'%s' is not one of show, check, export and repair",
                        what);
    TSR_TRY(place(args[1], &path, err));
    tsr_status st = tsr_batch_journal_look(&v, &tsr_io_system, path, err);
    if (st == TSR_OK) {
        st = *what == 's'   ? show(c, &v, err)
             : *what == 'c' ? check(&v, path, o->input, err)
             : *what == 'e' ? export_lines(&v, err)
                            : repair(c, &v, path, o->input, err);
        tsr_batch_journal_look_end(&v);
    }
    free(path);
    return st;
}

const struct tsr_verb tsr_verb_journal = {
    .name = "journal",
    .summary = "shows, checks, exports or repairs the journal of a batch",
    .args = "show|check|export|repair OUTPUT|FOLDER|FILE",
    .min_args = 2,
    .max_args = 2,
    .details = "show    counts the entries.\n"
               "export  prints the finished lines in input order, also while the batch runs.\n"
               "check   validates each line as a resumed batch does. With --input, also whether it "
               "answers its request.\n"
               "repair  writes every valid frame of a damaged journal into FILE.repaired, without "
               "the lines that check refuses.\n"
               "\n"
               "None of them changes the journal.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct journal_options),
    .run = run,
};
