/* Selects the rules for each component and collects their verdicts. */
#include "conformance/internal.h"
#include "conformance/text.h"

#include "base/file.h"
#include "base/mem.h"
#include "plugin/guard.h"
#include "quant/scheme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct part {
    char                                    *name; /* "rtn" */
    char                                    *text; /* "quantizer rtn" */
    const struct tsr_conformance_kind_rules *kind; /* NULL: a kind without rules */
    uint64_t                                 index;
};

struct check {
    struct tsr_conformance_check_report        *report;
    const struct tsr_conformance_check_options *o;
    FILE                                       *progress;
    struct part                                *parts;
    uint64_t                                    n_parts;
    bool                                        loads;
};

static tsr_status add_result(struct check *k, const struct tsr_conformance_rule *rule,
                             const char *component, const struct tsr_conformance_rule_run *run,
                             double seconds, struct tsr_err *err)
{
    enum tsr_verdict                     v = run->verdict;
    const char                          *text = run->text;
    struct tsr_conformance_check_report *r = k->report;
    struct tsr_conformance_check_result *all = tsr_renew(r->results, r->n + 1, sizeof *all);
    if (!all)
        return tsr_fail_nomem(err, sizeof *all, "a verdict");
    r->results = all;
    struct tsr_conformance_check_result *one = &all[r->n];
    *one = (struct tsr_conformance_check_result){ .rule = rule, .verdict = v, .seconds = seconds };
    if ((component && !(one->component = tsr_strdup(component))) ||
        (v != TSR_CONFORMANCE_PASS && !(one->text = tsr_strdup(text))) ||
        (*run->figures && !(one->figures = tsr_strdup(run->figures)))) {
        free(one->component);
        free(one->text);
        return tsr_fail_nomem(err, strlen(text), "a verdict");
    }
    r->n++;
    r->passed += v == TSR_CONFORMANCE_PASS;
    r->warned += v == TSR_CONFORMANCE_WARN;
    r->skipped += v == TSR_CONFORMANCE_SKIP;
    r->failed +=
        v == TSR_CONFORMANCE_FAILED || v == TSR_CONFORMANCE_CRASHED || v == TSR_CONFORMANCE_HUNG;
    if (k->progress)
        tsr_conformance_check_print(one, k->progress);
    return TSR_OK;
}

static bool wanted(const struct check *k, const struct tsr_conformance_rule *rule)
{
    const struct tsr_conformance_check_options *o = k->o;
    return (!o->only || tsr_quant_name_matches(o->only, rule->name)) &&
           !(o->skip && tsr_quant_name_matches(o->skip, rule->name));
}

static tsr_status run_rule(struct check *k, const struct tsr_conformance_rule *rule,
                           const struct part *part, struct tsr_err *err)
{
    if (!wanted(k, rule))
        return TSR_OK;
    struct tsr_conformance_rule_run *r = tsr_new(1, sizeof *r);
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "a rule");
    double seconds = 0;
    r->c = (struct tsr_conformance_case){ .rule = rule,
                                          .kind = part ? part->kind : NULL,
                                          .path = k->report->path,
                                          .seed = k->o->seed,
                                          .o = k->o };
    r->index = part ? part->index : 0;
    r->fd = -1;
    tsr_status st = TSR_OK;
    if (k->o->in_process)
        tsr_conformance_rule_run_here(r);
    else
        st =
            tsr_conformance_rule_fork(r, tsr_conformance_rule_run_here,
                                      k->o->limit_s ? k->o->limit_s : rule->limit_s, &seconds, err);
    /* of advice that cannot run */
    if (st == TSR_OK && rule->flags & TSR_CONFORMANCE_RULE_ADVICE &&
        r->verdict >= TSR_CONFORMANCE_CRASHED)
        r->verdict = TSR_CONFORMANCE_WARN;
    if (st == TSR_OK)
        st = add_result(k, rule, part ? part->text : NULL, r, seconds, err);
    free(r);
    return st;
}

/* ---- components to check ----------------------------------------------------------------- */

static tsr_status add_part(struct check *k, const char *kind, const char *name, uint64_t index,
                           struct tsr_err *err)
{
    const char  *noun = strchr(kind, '.') ? strchr(kind, '.') + 1 : kind;
    struct part *p = tsr_renew(k->parts, k->n_parts + 1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, name);
    k->parts = p;
    size_t word = strcspn(noun, "/"), n = word + strlen(name) + 2;
    p[k->n_parts] = (struct part){ .name = tsr_strdup(name),
                                   .text = tsr_new(n, 1),
                                   .kind = tsr_conformance_kind_rules_find(kind),
                                   .index = index };
    k->n_parts++;
    if (!p[k->n_parts - 1].name || !p[k->n_parts - 1].text)
        return tsr_fail_nomem(err, n, name);
    (void)snprintf(p[k->n_parts - 1].text, n, "%.*s %s", (int)word, noun, name);
    return TSR_OK;
}

/* A --set that no component took is a mistake of the user's, not of the plugin's. */
static tsr_status check_sets(const struct check *k, const bool *taken, struct tsr_err *err)
{
    for (uint64_t i = 0; i < k->o->n_sets; i++) {
        const char *set = k->o->sets[i];
        if (!strchr(set, '='))
            return tsr_fail(err, TSR_E_INPUT, "--set '%s' is not of the form key=value", set);
        if (!taken[i])
            return tsr_fail(err, TSR_E_INPUT,
                            "--set '%s': no component of %s has this option; `tessera inspect %s` "
                            "lists them",
                            set, k->report->path, k->report->path);
    }
    return TSR_OK;
}

static tsr_status read_parts(struct check *k, char *text, bool *taken, struct tsr_err *err)
{
    char *line_end = strchr(text, '\n'), *line = line_end + 1;
    bool  found = !k->o->component;
    if (!line_end)
        return tsr_fail(err, TSR_E_BUG, "a list of components without the plugin's id");
    k->report->id = tsr_strndup(text, (size_t)(line_end - text));
    if (!k->report->id)
        return tsr_fail_nomem(err, strlen(text), "a plugin's id");
    for (uint64_t index = 0; (line_end = strchr(line, '\n')); line = line_end + 1, index++) {
        char *name = strchr(line, '\t'), *sets = name ? strchr(name + 1, '\t') : NULL;
        if (!sets)
            return tsr_fail(err, TSR_E_BUG, "a component without a name in the list");
        *name++ = *sets++ = *line_end = '\0';
        if (k->o->component && strcmp(k->o->component, name) != 0)
            continue;
        found = true;
        for (uint64_t i = 0; i < k->o->n_sets && sets[i]; i++)
            taken[i] |= sets[i] == '1';
        TSR_TRY(add_part(k, line, name, index, err));
    }
    if (!found)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has no component '%s'; `tessera inspect %s` lists them",
                        k->report->path, k->o->component, k->report->path);
    return check_sets(k, taken, err);
}

/* A plugin that cannot be described has its verdict from the rules that load it themselves. */
static tsr_status describe(struct check *k, struct tsr_err *err)
{
    struct tsr_conformance_rule_run *r = tsr_new(1, sizeof *r);
    bool                            *taken = tsr_new(k->o->n_sets + 1, sizeof *taken);
    double                           seconds;
    tsr_status st = r && taken ? TSR_OK : tsr_fail_nomem(err, sizeof *r, "a check");
    if (st == TSR_OK) {
        r->c.path = k->report->path;
        r->c.o = k->o;
        st = tsr_conformance_rule_fork(r, tsr_conformance_describe_here, k->o->limit_s, &seconds,
                                       err);
    }
    if (st == TSR_OK && r->verdict == TSR_CONFORMANCE_SKIP)
        st = tsr_fail(err, TSR_E_INPUT, "%s", r->text);
    else if (st == TSR_OK && r->verdict == TSR_CONFORMANCE_PASS) {
        k->loads = true;
        st = read_parts(k, r->text, taken, err);
    }
    free(r);
    free(taken);
    return st;
}

static tsr_status check_only(const struct check *k, struct tsr_err *err)
{
    const struct tsr_conformance_rule *rule;
    const char                        *kind, *pattern = k->o->only;
    bool                               any = !pattern;
    for (uint64_t i = 0; !any && tsr_conformance_check_rule_at(i, &rule, &kind); i++)
        any = tsr_quant_name_matches(pattern, rule->name);
    if (!any)
        return tsr_fail(err, TSR_E_INPUT,
                        "--only '%s': no rule has this name; `tessera plugin check --list` shows "
                        "them",
                        pattern);
    if (k->o->in_process && (!pattern || strpbrk(pattern, "*?[")))
        return tsr_fail(err, TSR_E_INPUT,
                        "--in-process runs one rule, in a process that ends with it; name it with "
                        "--only");
    return TSR_OK;
}

/* The rules that make all others meaningless if they fail: one plain life of the component ended its
 * process, or its device is missing; every other rule would repeat that. */
static bool no_life(const struct check *k)
{
    const struct tsr_conformance_check_result *last =
        k->report->n ? &k->report->results[k->report->n - 1] : NULL;
    if (!last)
        return false;
    if (strcmp(last->rule->name, "no-exit") == 0 || strcmp(last->rule->name, "no-crash") == 0)
        return last->verdict == TSR_CONFORMANCE_FAILED ||
               last->verdict == TSR_CONFORMANCE_CRASHED || last->verdict == TSR_CONFORMANCE_HUNG;
    return strcmp(last->rule->name, "works") == 0 &&
           (last->verdict == TSR_CONFORMANCE_CRASHED || last->verdict == TSR_CONFORMANCE_HUNG ||
            (last->verdict == TSR_CONFORMANCE_SKIP && strstr(last->text, "TSR_E_DEVICE")));
}

static tsr_status run_part(struct check *k, const struct part *part, struct tsr_err *err)
{
    uint64_t before = k->report->n;
    for (uint64_t i = 0; i < tsr_n_any_rules; i++) {
        if (tsr_any_rules[i].flags & TSR_CONFORMANCE_RULE_FILE)
            continue;
        TSR_TRY(run_rule(k, &tsr_any_rules[i], part, err));
        if (k->report->n == before || !no_life(k))
            continue;
        if (k->progress)
            (void)fprintf(k->progress, "         the other rules of %s wait until it works\n",
                          part->text);
        return TSR_OK;
    }
    for (uint64_t i = 0; i < part->kind->n_rules; i++)
        TSR_TRY(run_rule(k, &part->kind->rules[i], part, err));
    return TSR_OK;
}

static tsr_status run_all(struct check *k, struct tsr_err *err)
{
    for (uint64_t i = 0; i < tsr_n_any_rules; i++)
        if (tsr_any_rules[i].flags & TSR_CONFORMANCE_RULE_FILE &&
            (k->loads || tsr_any_rules[i].flags & TSR_CONFORMANCE_RULE_RAW))
            TSR_TRY(run_rule(k, &tsr_any_rules[i], NULL, err));
    for (uint64_t p = 0; p < k->n_parts; p++)
        if (k->parts[p].kind)
            TSR_TRY(run_part(k, &k->parts[p], err));
    return TSR_OK;
}

/* ---- families and tasks -------------------------------------------------------------------- */

static bool breaks(const struct tsr_conformance_check_result *r)
{
    return r->verdict == TSR_CONFORMANCE_FAILED || r->verdict == TSR_CONFORMANCE_CRASHED ||
           r->verdict == TSR_CONFORMANCE_HUNG;
}

/* The first rule of a kind is that the file can be read; the others wait until it can. */
static tsr_status run_text(struct check *k, struct tsr_err *err)
{
    struct tsr_conformance_text t;
    if (k->o->component || k->o->n_sets)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is a YAML file, which has neither components nor options; leave "
                        "--component and --set out",
                        k->report->path);
    TSR_TRY(tsr_conformance_text_open(&t, k->report->path, err));
    tsr_status st = add_part(k, t.kind->kind, *t.name ? t.name : "without a name", 0, err);
    for (uint64_t i = 0; st == TSR_OK && i < t.kind->n_rules; i++) {
        uint64_t before = k->report->n;
        st = run_rule(k, &t.kind->rules[i], &k->parts[0], err);
        if (st == TSR_OK && i == 0 && k->report->n > before && breaks(&k->report->results[before]))
            break;
    }
    k->report->id = t.name;
    return st;
}

tsr_status tsr_conformance_check_run(struct tsr_conformance_check_report *report, const char *path,
                                     const struct tsr_conformance_check_options *o, FILE *progress,
                                     struct tsr_err *err)
{
    struct check    k = { .report = report, .o = o, .progress = progress };
    struct tsr_file f;
    memset(report, 0, sizeof *report);
    report->seed = o->seed;
    tsr_plugin_guard_watch(); /* now, and not in the middle of a rule whose plugin requests a
                               * service */
    TSR_TRY(tsr_file_open(&f, path, err));
    tsr_file_close(&f);
    report->path = realpath(path, NULL);
    if (!report->path)
        return tsr_fail_errno(err, errno, path, "find");
    TSR_TRY(check_only(&k, err));
    tsr_status st;
    if (tsr_conformance_is_text(report->path)) {
        st = run_text(&k, err);
    } else {
        st = describe(&k, err);
        if (st == TSR_OK)
            st = run_all(&k, err);
    }
    for (uint64_t i = 0; i < k.n_parts; i++) {
        free(k.parts[i].name);
        free(k.parts[i].text);
    }
    free(k.parts);
    return st;
}

void tsr_conformance_check_report_free(struct tsr_conformance_check_report *r)
{
    for (uint64_t i = 0; i < r->n; i++) {
        free(r->results[i].component);
        free(r->results[i].text);
        free(r->results[i].figures);
    }
    free(r->results);
    free(r->id);
    free(r->path);
    memset(r, 0, sizeof *r);
}
