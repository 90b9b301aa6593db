/* Calls that do not come back: an exit, and a signal that ends the process.
 *
 * These two rules run before all others and through the table that the registry hands out, which
 * knows the call that is under way (plugin/guard.h).  What it puts back after a call is not looked
 * at here: the rules of any_process.c call the plugin's own functions. */
#include "conformance/any.h"

#include "plugin/guard.h"
#include "plugin/shim.h"

static struct tsr_case *held;

static void on_exit_call(const struct tsr_guard *g, const char *what)
{
    if (held->rule->run == tsr_any_no_exit)
        tsr_rule_fail(held, "%s() %s, which is the host's to do", g->call, what);
    tsr_rule_skip(held, "%s() %s, which the rule no-exit is about", g->call, what);
}

static void on_signal(const char *what)
{
    const struct tsr_guard *g = tsr_guard_current;
    if (!g)
        return; /* on a thread of the plugin's own */
    if (held->rule->run == tsr_any_no_crash)
        tsr_rule_fail(held, "%s() %s", g->call, what);
    tsr_rule_skip(held, "%s() %s, which the rule no-crash is about", g->call, what);
}

static void live(struct tsr_case *c)
{
    /* components that were loaded are the first member of their entry */
    const struct tsr_entry *e = (const void *)c->component;
    struct tsr_errbuf       b = TSR_ERRBUF(b);
    held = c;
    if (tsr_shim_table(e, c->path, c->plugin->id, &c->iface, &b.err) != TSR_OK)
        tsr_rule_skip(c, "%s", b.text);
    if (!c->o->in_process) { /* a debugger sees for itself */
        tsr_guard_on_exit(on_exit_call);
        tsr_child_on_signal(on_signal);
    }
    tsr_status st = c->kind->exercise(c, false, &b.err);
    if (st == TSR_E_DEVICE || st == TSR_E_CONFIG)
        tsr_rule_skip(c, "%s: %s", tsr_status_name(st), *b.text ? b.text : "no reason given");
}

void tsr_any_no_exit(struct tsr_case *c)
{
    live(c);
}

void tsr_any_no_crash(struct tsr_case *c)
{
    live(c);
}
