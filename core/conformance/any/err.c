/* Errors of a component: a status, and a sentence if there is room for one. Failures are provoked by
 * options at their boundaries and by failing allocations. */
#include "conformance/any/any.h"

#include <jansson.h>
#include <string.h>

static void everything(struct tsr_conformance_case *c,
                       void (*f)(struct tsr_conformance_case *c, const char *what))
{
    f(c, "its defaults");
    tsr_any_each_boundary(c, f);
    tsr_any_each_alloc(c, f);
}

static void status_known(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = c->kind->exercise(c, false, &e.err);
    if (st > 0 || st < TSR_E_CANCELLED)
        tsr_conformance_rule_fail(c, "with %s it answers %d, which means nothing", what, st);
}

void tsr_any_status_known(struct tsr_conformance_case *c)
{
    everything(c, status_known);
}

static void err_sentence(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = c->kind->exercise(c, false, &e.err);
    if (st == TSR_OK)
        return;
    if (!*e.text)
        tsr_conformance_rule_fail(c, "with %s it answers %s and leaves err->text empty", what,
                                  tsr_conformance_status_name(st));
    for (const unsigned char *p = (const unsigned char *)e.text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            tsr_conformance_rule_fail(c, "with %s its text has the control character 0x%02x: %s",
                                      what, *p, e.text);
    json_t *j = json_string(e.text);
    if (!j)
        tsr_conformance_rule_fail(c, "with %s its text is not UTF-8", what);
    json_decref(j);
}

void tsr_any_err_sentence(struct tsr_conformance_case *c)
{
    everything(c, err_sentence);
}

static void err_null(struct tsr_conformance_case *c, const char *what)
{
    (void)what;
    (void)c->kind->exercise(c, false, NULL);
}

void tsr_any_err_null(struct tsr_conformance_case *c)
{
    everything(c, err_null);
}

static void err_small(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_err none = { .struct_size = sizeof none, .cap = 0, .text = NULL };
    char          *one = tsr_conformance_guarded("err->text", 1, 'x');
    struct tsr_err small = { .struct_size = sizeof small, .cap = 1, .text = one };
    tsr_status     st = c->kind->exercise(c, false, &small);
    if (!tsr_conformance_guarded_intact(one))
        tsr_conformance_rule_fail(c, "with %s it wrote past the end of an err->text of 1 byte",
                                  what);
    if (st != TSR_OK && *one != '\0' && *one != 'x')
        tsr_conformance_rule_fail(c, "with %s it left an err->text of 1 byte without its end",
                                  what);
    tsr_conformance_guarded_free(one);
    (void)c->kind->exercise(c, false, &none);
}

void tsr_any_err_small(struct tsr_conformance_case *c)
{
    everything(c, err_small);
}
