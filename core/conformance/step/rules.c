/* Steps: the rules. */
#include "conformance/step/step.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))

static void *made(struct tsr_conformance_case *c)
{
    const struct tsr_step_v1 *t = c->iface;
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    void                     *self = NULL;
    tsr_conformance_rule_ok(c, t->create(c->host->give, c->options, &self, &e.err), &e, "create()");
    return self;
}

/* check() and run() of a fresh instance, which is destroyed. */
static void whole(struct tsr_conformance_case *c, struct tsr_step_rules_test *x)
{
    const struct tsr_step_v1 *t = c->iface;
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    const char               *unmet = tsr_step_rules_unmet(c);
    if (unmet)
        tsr_conformance_rule_skip(c, "the rules have no result '%s'", unmet);
    tsr_step_rules_open(x, c);
    void *self = made(c);
    tsr_conformance_rule_ok(c, tsr_step_rules_check(x, self, &e.err), &e, "check()");
    tsr_status st = tsr_step_rules_run(x, self, &e.err);
    t->destroy(self);
    tsr_conformance_rule_ok(c, st, &e, "run()");
}

static void nothing_wrong(struct tsr_conformance_case *c, enum tsr_step_rules_wrong which)
{
    struct tsr_step_rules_test x;
    whole(c, &x);
    if (x.wrong[which][0])
        tsr_conformance_rule_fail(c, "%s", x.wrong[which]);
}

/* ---- the table ------------------------------------------------------------------------------------ */

static bool good_name(const char *s)
{
    size_t n = s ? strnlen(s, 64) : 0;
    return n > 0 && n < 64 && *s >= 'a' && *s <= 'z' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

static void check_product(struct tsr_conformance_case *c, const struct tsr_step_v1 *t, uint64_t i)
{
    const struct tsr_step_product *p = t->products ? t->products[i] : NULL;
    if (!p || p->struct_size < sizeof *p)
        tsr_conformance_rule_fail(c, "product %llu is NULL, or shorter than a product", U(i) + 1);
    if (!good_name(p->name) || strcmp(p->name, "section") == 0 || strcmp(p->name, "files") == 0)
        tsr_conformance_rule_fail(c, "product %llu has the name '%.60s'", U(i) + 1,
                                  p->name ? p->name : "");
    if (p->form != TSR_STEP_JSON && p->form != TSR_STEP_FILE)
        tsr_conformance_rule_fail(c, "product '%s' has the form %u", p->name, p->form);
    if (!p->help || !*p->help)
        tsr_conformance_rule_fail(c, "product '%s' has no help", p->name);
    for (uint64_t k = 0; k < i; k++)
        if (strcmp(t->products[k]->name, p->name) == 0)
            tsr_conformance_rule_fail(c, "product '%s' is declared twice", p->name);
}

void tsr_step_rule_declares(struct tsr_conformance_case *c)
{
    const struct tsr_step_v1 *t = c->iface;
    uint64_t                  known = TSR_STEP_MODEL | TSR_STEP_TOKENIZER;
    if (t->needs & ~known || t->needs == TSR_STEP_TOKENIZER)
        tsr_conformance_rule_fail(
            c, "needs is %llx; wanted TSR_STEP_MODEL, alone or with TSR_STEP_TOKENIZER, or 0",
            U(t->needs));
    for (uint64_t i = 0; i < t->n_inputs; i++) {
        const char *s = t->inputs && t->inputs[i] ? t->inputs[i] : "";
        size_t      n = strcspn(s, "/");
        if (n == 0 || strcmp(s, "options") == 0 || strcmp(s, "config") == 0 ||
            (s[n] && !good_name(s + n + 1)))
            tsr_conformance_rule_fail(c, "input %llu is '%.60s'; wanted STEP or STEP/PRODUCT",
                                      U(i) + 1, s);
    }
    for (uint64_t i = 0; i < t->n_products; i++)
        check_product(c, t, i);
}

/* ---- a run ---------------------------------------------------------------------------------------- */

void tsr_step_rule_products(struct tsr_conformance_case *c)
{
    struct tsr_step_rules_test x;
    whole(c, &x);
    if (x.wrong[TSR_STEP_WRONG_PRODUCT][0])
        tsr_conformance_rule_fail(c, "%s", x.wrong[TSR_STEP_WRONG_PRODUCT]);
    for (uint64_t i = 0; i < x.t->n_products; i++)
        if (!json_object_get(x.names, x.t->products[i]->name))
            tsr_conformance_rule_fail(c, "run() ends without the product '%s'",
                                      x.t->products[i]->name);
}

void tsr_step_rule_finite(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_FIGURE);
}

void tsr_step_rule_needs(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_NEED);
}

void tsr_step_rule_ranges(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_RANGE);
}

void tsr_step_rule_files(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_FILE);
}

void tsr_step_rule_window(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_WINDOW);
}

void tsr_step_rule_section(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_SECTION);
}

void tsr_step_rule_check(struct tsr_conformance_case *c)
{
    nothing_wrong(c, TSR_STEP_WRONG_CHECK);
}

/* A run in which one call fails. */
static void failing(struct tsr_conformance_case *c, const char *function, json_int_t at)
{
    const struct tsr_step_v1  *t = c->iface;
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_step_rules_test x;
    tsr_step_rules_open(&x, c);
    x.fail_in = function;
    x.fail_at = at;
    void      *self = made(c);
    tsr_status st = tsr_step_rules_check(&x, self, &e.err);
    if (st == TSR_OK && !x.failed)
        st = tsr_step_rules_run(&x, self, &e.err);
    t->destroy(self);
    if (x.failed)
        tsr_conformance_rule_refused(c, st, TSR_E_UNSUPPORTED, &e,
                                     "call %lld of %s fails with TSR_E_UNSUPPORTED", (long long)at,
                                     function);
    tsr_step_rules_close(&x);
}

/* The first and the last call of each function. */
void tsr_step_rule_passes_on(struct tsr_conformance_case *c)
{
    struct tsr_step_rules_test x;
    const char                *function;
    json_t                    *n;
    whole(c, &x);
    json_object_foreach (x.calls, function, n) {
        failing(c, function, 1);
        failing(c, function, json_integer_value(n));
    }
}

void tsr_step_rule_repeats(struct tsr_conformance_case *c)
{
    struct tsr_step_rules_test a, b;
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    whole(c, &a);
    whole(c, &b);
    if (!json_equal(a.made, b.made))
        tsr_conformance_rule_fail(c, "a second instance gives other products or another section");
    void *self = made(c);
    tsr_step_rules_close(&b);
    tsr_step_rules_open(&b, c);
    tsr_conformance_rule_ok(c, tsr_step_rules_check(&b, self, &e.err), &e, "check()");
    tsr_conformance_rule_ok(c, tsr_step_rules_run(&b, self, &e.err), &e, "run()");
    tsr_step_rules_close(&b);
    tsr_step_rules_open(&b, c);
    tsr_conformance_rule_ok(c, tsr_step_rules_check(&b, self, &e.err), &e, "check()");
    tsr_conformance_rule_ok(c, tsr_step_rules_run(&b, self, &e.err), &e, "run() again");
    if (!json_equal(a.made, b.made))
        tsr_conformance_rule_fail(c, "run() again gives other products or another section");
}
