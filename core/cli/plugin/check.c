#include "cli/plugin/check.h"

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "cli/plugin/check_page.h"
#include "cli/plugin/report.h"
#include "conformance/conformance.h"
#include "conformance/rule.h"
#include "conformance/text.h"

#include <jansson.h>
#include <string.h>

static bool add_rule(json_t *list, const struct tsr_conformance_rule *rule, const char *kind)
{
    json_t *j = json_pack("{s:s, s:s?, s:s, s:b}", "rule", rule->name, "kind", kind, "wants",
                          rule->text, "advice", (rule->flags & TSR_CONFORMANCE_RULE_ADVICE) != 0);
    return json_array_append_new(list, j) == 0;
}

static tsr_status list_rules(struct tsr_cli *c, struct tsr_err *err)
{
    const struct tsr_conformance_rule *rule;
    const char                        *kind;
    json_t                            *list = c->json ? json_array() : NULL;
    bool                               ok = !c->json || list;
    for (uint64_t i = 0; ok && tsr_conformance_check_rule_at(i, &rule, &kind); i++) {
        if (c->json)
            ok = add_rule(list, rule, kind);
        else
            (void)printf("%-10s %-20s %s%s\n", kind ? kind : "any", rule->name, rule->text,
                         rule->flags & TSR_CONFORMANCE_RULE_ADVICE ? " (advice)" : "");
    }
    if (!c->json)
        return tsr_cli_flush(err);
    if (!ok) {
        json_decref(list);
        list = NULL;
    }
    return tsr_cli_print_json(list, err);
}

/* ---- the bundled model --------------------------------------------------------------- */

static bool put_figures(json_t *list, const char *component, const struct tsr_cli_model_report *m)
{
    json_t *j =
        *m->failed
            ? json_pack("{s:s, s:s}", "component", component, "failed", m->failed)
            : json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "component",
                        component, "model", "@demo", "bits_per_weight", m->bits, "perplexity",
                        m->perplexity, "original_perplexity", m->original, "kl_mean", m->kl, "top1",
                        m->top1, "prefill_tokens_per_s", m->prefill,
                        "original_prefill_tokens_per_s", m->prefill_was, "decode_tokens_per_s",
                        m->decode, "original_decode_tokens_per_s", m->decode_was);
    return json_array_append_new(list, j) == 0;
}

static void print_figures(const char *component, const struct tsr_cli_model_report *m)
{
    if (*m->failed) {
        (void)printf("model    %s: not measured: %s\n", component, m->failed);
        return;
    }
    (void)printf(
        "model    %s on @demo: %.2f bits a weight; perplexity %.4g, of the original %.4g; "
        "KL %.3g, the same first token %.1f %%; tokens a second %.0f and %.0f one by one, of "
        "the original %.0f and %.0f\n",
        component, m->bits, m->perplexity, m->original, m->kl, 100 * m->top1, m->prefill, m->decode,
        m->prefill_was, m->decode_was);
}

/* Every quantizer of the file that was checked, into list; without --json also as lines on stdout. */
static tsr_status tell_figures(struct tsr_cli *c, const struct tsr_conformance_check_report *r,
                               json_t *list, struct tsr_err *err)
{
    static const char noun[] = "quantizer ";
    const char       *last = NULL;
    for (uint64_t i = 0; i < r->n; i++) {
        const char                 *component = r->results[i].component;
        struct tsr_cli_model_report m;
        if (!component || strncmp(component, noun, sizeof noun - 1) != 0 ||
            (last && strcmp(last, component) == 0))
            continue;
        last = component;
        TSR_TRY(tsr_plugin_report(c, r->path, r->id, component + sizeof noun - 1, &m, err));
        if (!c->json)
            print_figures(component, &m);
        if (!put_figures(list, component, &m))
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: the figures of a model");
    }
    return TSR_OK;
}

/* ---- the verdict ------------------------------------------------------------------------ */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static tsr_status check_report(const char *path, struct tsr_err *err)
{
    return !*path || ends_with(path, ".json") || ends_with(path, ".html")
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT,
                          "--report %s: is neither .json nor .html, the forms of a report", path);
}

/* Rules about devices leave out what they have no device for: a name that is no plugin's must not look like that. */
static tsr_status check_on(const char *path, struct tsr_err *err)
{
    struct tsr_file f;
    if (!*path)
        return TSR_OK;
    TSR_TRY(tsr_file_open(&f, path, err));
    tsr_file_close(&f);
    return tsr_file_begins(path, "\177ELF", 4)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT,
                          "--on %s: is not an ELF shared object; name the .so file of a backend",
                          path);
}

static tsr_status store_report(const char *path, const json_t *j, struct tsr_err *err)
{
    struct tsr_writer w;
    if (ends_with(path, ".json"))
        return tsr_json_store(path, j, JSON_INDENT(1), err);
    TSR_TRY(tsr_writer_open(&w, path, err));
    tsr_cli_check_page(&w, j);
    return tsr_writer_commit(&w, err);
}

static tsr_status say(struct tsr_cli *c, const struct tsr_conformance_check_report *r, bool model,
                      const char *report, struct tsr_err *err)
{
    json_t    *j = tsr_conformance_check_json(r), *list = json_array();
    tsr_status st = list && j ? TSR_OK : tsr_fail(err, TSR_E_NOMEM, "out of memory: a report");
    if (st == TSR_OK && model)
        st = tell_figures(c, r, list, err);
    if (st == TSR_OK && model && json_object_set(j, "models", list) != 0)
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: a report");
    json_decref(list);
    if (st == TSR_OK && *report)
        st = store_report(report, j, err);
    if (st == TSR_OK && c->json)
        return tsr_cli_print_json(j, err);
    json_decref(j);
    TSR_TRY(st);
    (void)printf("%s: %llu passed, %llu failed, %llu warnings, %llu skipped\n", r->path,
                 (unsigned long long)r->passed, (unsigned long long)r->failed,
                 (unsigned long long)r->warned, (unsigned long long)r->skipped);
    return tsr_cli_flush(err);
}

tsr_status tsr_cli_plugin_check(struct tsr_cli *c, const struct tsr_plugin_check *o, char **args,
                                int n_args, struct tsr_err *err)
{
    TSR_TRY(check_report(o->report, err));
    if (o->list)
        return n_args == 0 ? list_rules(c, err)
                           : tsr_fail(err, TSR_E_INPUT, "plugin check --list takes no FILE");
    if (n_args != 1)
        return tsr_fail(err, TSR_E_INPUT,
                        "plugin check needs one FILE, a plugin's .so or the .yaml of a family or a "
                        "task");
    if (tsr_path_is_dir(args[0]))
        return tsr_fail(err, TSR_E_INPUT, "%s: is a folder; name the .so or .yaml file in it",
                        args[0]);
    TSR_TRY(check_on(o->on, err));
    struct tsr_conformance_check_options co = { .only = *o->only ? o->only : NULL,
                                                .skip = *o->skip ? o->skip : NULL,
                                                .component = *o->component ? o->component : NULL,
                                                .on = *o->on ? o->on : NULL,
                                                .sets = c->sets,
                                                .n_sets = c->n_sets,
                                                .seed = (uint64_t)o->seed,
                                                .limit_s = (uint32_t)o->limit,
                                                .in_process = o->in_process != 0 };
    struct tsr_conformance_check_report  r;
    tsr_status                           st =
        tsr_conformance_check_run(&r, args[0], &co, c->json || c->quiet ? NULL : stdout, err);
    /* skip the figures of a quantizer that breaks rules, or if some rules did not run */
    bool model = o->model && !co.only && !co.skip;
    if (st == TSR_OK)
        st = say(c, &r, model && r.failed == 0, o->report, err);
    if (st == TSR_OK && r.failed)
        st = tsr_fail(err, TSR_E_CHECK, "%s breaks %llu rule%s of %s", r.path,
                      (unsigned long long)r.failed, r.failed == 1 ? "" : "s",
                      tsr_conformance_is_text(r.path) ? "its kind (plugin check --list)"
                                                      : "the plugin interface (abi.md)");
    tsr_conformance_check_report_free(&r);
    return st;
}
