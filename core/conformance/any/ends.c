/* Calls that do not return: an exit, and a signal that ends the process.
 *
 * These two rules run before all others and through the table that the registry returns, which tracks the
 * current call (plugin/guard.h). They do not check what that table restores after a call: the rules of
 * process.c call the plugin's functions directly. */
#include "conformance/any/any.h"

#include "plugin/guard.h"
#include "plugin/shim.h"

static struct tsr_conformance_case *held;

static void on_exit_call(const struct tsr_plugin_guard *g, const char *what)
{
    if (held->rule->run == tsr_any_no_exit)
        tsr_conformance_rule_fail(held, "%s() %s, which is the host's to do", g->call, what);
    tsr_conformance_rule_skip(held, "%s() %s, which the rule no-exit is about", g->call, what);
}

static void on_signal(const char *what)
{
    const struct tsr_plugin_guard *g = tsr_guard_current;
    if (!g)
        return; /* on a thread of the plugin's own */
    if (held->rule->run == tsr_any_no_crash)
        tsr_conformance_rule_fail(held, "%s() %s", g->call, what);
    tsr_conformance_rule_skip(held, "%s() %s, which the rule no-crash is about", g->call, what);
}

static void live(struct tsr_conformance_case *c)
{
    /* components that were loaded are the first member of their entry */
    const struct tsr_plugin_entry *e = (const void *)c->component;
    struct tsr_errbuf              b = TSR_ERRBUF(b);
    held = c;
    if (tsr_plugin_shim_table(e, c->path, c->plugin->id, &c->iface, &b.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "%s", b.text);
    if (!c->o->in_process) { /* a debugger sees for itself */
        tsr_plugin_guard_on_exit(on_exit_call);
        tsr_conformance_child_on_signal(on_signal);
    }
    tsr_status st = c->kind->exercise(c, false, &b.err);
    if (st == TSR_E_DEVICE || st == TSR_E_CONFIG)
        tsr_conformance_rule_skip(c, "%s: %s", tsr_conformance_status_name(st),
                                  *b.text ? b.text : "no reason given");
}

void tsr_any_no_exit(struct tsr_conformance_case *c)
{
    live(c);
}

void tsr_any_no_crash(struct tsr_conformance_case *c)
{
    live(c);
}
