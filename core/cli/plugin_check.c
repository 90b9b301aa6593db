#include "cli/plugin_check.h"

#include "conformance/conformance.h"
#include "conformance/rule.h"

#include <jansson.h>

static bool add_rule(json_t *list, const struct tsr_rule *rule, const char *kind)
{
    json_t *j = json_pack("{s:s, s:s?, s:s, s:b}", "rule", rule->name, "kind", kind, "wants",
                          rule->text, "advice", (rule->flags & TSR_RULE_ADVICE) != 0);
    return json_array_append_new(list, j) == 0;
}

static tsr_status list_rules(struct tsr_cli *c, struct tsr_err *err)
{
    const struct tsr_rule *rule;
    const char            *kind;
    json_t                *list = c->json ? json_array() : NULL;
    bool                   ok = !c->json || list;
    for (uint64_t i = 0; ok && tsr_check_rule_at(i, &rule, &kind); i++) {
        if (c->json)
            ok = add_rule(list, rule, kind);
        else
            (void)printf("%-10s %-20s %s%s\n", kind ? kind : "any", rule->name, rule->text,
                         rule->flags & TSR_RULE_ADVICE ? " (advice)" : "");
    }
    if (!c->json)
        return tsr_cli_flush(err);
    if (!ok) {
        json_decref(list);
        list = NULL;
    }
    return tsr_cli_print_json(list, err);
}

static tsr_status say(struct tsr_cli *c, const struct tsr_check_report *r, struct tsr_err *err)
{
    if (c->json)
        TSR_TRY(tsr_cli_print_json(tsr_check_json(r), err));
    else
        (void)printf("%s: %llu passed, %llu failed, %llu warnings, %llu skipped\n", r->path,
                     (unsigned long long)r->passed, (unsigned long long)r->failed,
                     (unsigned long long)r->warned, (unsigned long long)r->skipped);
    TSR_TRY(tsr_cli_flush(err));
    if (r->failed == 0)
        return TSR_OK;
    return tsr_fail(err, TSR_E_CHECK, "%s breaks %llu rule%s of docs/abi.md", r->path,
                    (unsigned long long)r->failed, r->failed == 1 ? "" : "s");
}

tsr_status tsr_cli_plugin_check(struct tsr_cli *c, const struct tsr_plugin_check *o, char **args,
                                int n_args, struct tsr_err *err)
{
    if (o->list)
        return n_args == 0 ? list_rules(c, err)
                           : tsr_fail(err, TSR_E_INPUT, "plugin check --list takes no FILE");
    if (n_args != 1)
        return tsr_fail(err, TSR_E_INPUT, "plugin check needs one FILE, a plugin's .so");
    struct tsr_check_options co = { .only = *o->only ? o->only : NULL,
                                    .skip = *o->skip ? o->skip : NULL,
                                    .component = *o->component ? o->component : NULL,
                                    .sets = c->sets,
                                    .n_sets = c->n_sets,
                                    .seed = (uint64_t)o->seed,
                                    .limit_s = (uint32_t)o->limit,
                                    .in_process = o->in_process != 0 };
    struct tsr_check_report  r;
    tsr_status st = tsr_check_run(&r, args[0], &co, c->json || c->quiet ? NULL : stdout, err);
    if (st == TSR_OK)
        st = say(c, &r, err);
    tsr_check_report_free(&r);
    return st;
}
