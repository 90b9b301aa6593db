/* The option table, beyond the host's checks at load time. */
#include "conformance/any/any.h"
#include "tessera/backend.h"
#include "tessera/transport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A transport that uses no shared memory of Tessera's: a launcher connects its ranks. */
static bool needs_launcher(const struct tsr_conformance_case *c)
{
    const struct tsr_transport_v1 *t = c->iface;
    return strcmp(c->component->kind, TSR_KIND_TRANSPORT) == 0 &&
           t->world_bytes(c->options, 2) == 0;
}

/* A backend whose device is missing here: the rules of its kind cannot run. */
static bool no_device(struct tsr_conformance_case *c)
{
    void *self = NULL;
    if (strcmp(c->kind->kind, TSR_KIND_BACKEND) != 0)
        return false;
    tsr_status st = c->kind->make(c, &self, NULL);
    if (st == TSR_OK)
        c->kind->unmake(c, self);
    return st == TSR_E_DEVICE;
}

void tsr_any_works(struct tsr_conformance_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = c->kind->exercise(c, false, &e.err);
    if (st == TSR_E_CONFIG && needs_launcher(c))
        tsr_conformance_rule_skip(c, "create() answers TSR_E_CONFIG: %s", e.text);
    if (st == TSR_E_DEVICE && no_device(c))
        tsr_conformance_rule_skip(c, "create() answers TSR_E_DEVICE: %s", e.text);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%s: %s", tsr_conformance_status_name(st),
                                  *e.text ? e.text : "no reason given");
}

static uint64_t width(const struct tsr_option *o)
{
    return o->type == TSR_OPT_BOOL ? 4 : 8;
}

void tsr_any_options_covered(struct tsr_conformance_case *c)
{
    const struct tsr_component *p = c->component;
    unsigned char              *used = tsr_conformance_rule_memory(c, p->options_size);
    for (uint64_t i = 0; i < p->n_options; i++) /* the host has checked that each fits */
        memset(used + p->options[i].offset, 1, width(&p->options[i]));
    for (uint64_t at = 0; at < p->options_size;) {
        uint64_t gap = 0;
        while (at + gap < p->options_size && !used[at + gap])
            gap++;
        if (gap >= 8)
            tsr_conformance_rule_fail(
                c,
                "bytes %llu to %llu of the option struct are no option's; padding is at "
                "most 7 bytes",
                (unsigned long long)at, (unsigned long long)(at + gap - 1));
        at += gap + 1;
    }
}

/* ---- boundaries -------------------------------------------------------------------------- */

struct trial {
    struct tsr_conformance_case *c;
    void (*f)(struct tsr_conformance_case *c, const char *what);
    const void              *defaults;
    unsigned char           *block;
    const struct tsr_option *o;
};

static void with(const struct trial *t, const void *value, const char *shown)
{
    char what[300];
    memcpy(t->block, t->defaults, t->c->component->options_size);
    memcpy(t->block + t->o->offset, value, width(t->o));
    (void)snprintf(what, sizeof what, "option %s = %s", t->o->name, shown);
    t->c->options = t->block;
    t->f(t->c, what);
}

static void with_int(const struct trial *t, int64_t v)
{
    char shown[32];
    (void)snprintf(shown, sizeof shown, "%lld", (long long)v);
    with(t, &v, shown);
}

static void with_real(const struct trial *t, double v)
{
    char shown[32];
    (void)snprintf(shown, sizeof shown, "%g", v);
    with(t, &v, shown);
}

static void try_option(const struct trial *t)
{
    static const char *const strings[] = { "", "x", "/nonexistent/file" };
    const struct tsr_option *o = t->o;
    switch (o->type) {
    case TSR_OPT_BOOL:
        with(t, &(int32_t){ 0 }, "false");
        with(t, &(int32_t){ 1 }, "true");
        break;
    case TSR_OPT_INT: /* without bounds any number is allowed */
        with_int(t, o->min.i != o->max.i ? o->min.i : INT64_MIN);
        with_int(t, o->min.i != o->max.i ? o->max.i : INT64_MAX);
        if (o->min.i == o->max.i)
            with_int(t, 0);
        break;
    case TSR_OPT_REAL: {
        bool bounded = o->min.r < o->max.r;
        with_real(t, bounded ? o->min.r : -1e300);
        with_real(t, bounded ? o->max.r : 1e300);
        if (!bounded)
            with_real(t, 0.0);
        break;
    }
    case TSR_OPT_ENUM:
        for (uint64_t i = 0; i < o->n_choices; i++)
            with(t, &o->choices[i].value, o->choices[i].name);
        break;
    default:
        for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
            with(t, &strings[i], strings[i]);
        break;
    }
}

void tsr_any_each_boundary(struct tsr_conformance_case *c,
                           void (*f)(struct tsr_conformance_case *c, const char *what))
{
    struct trial t = { .c = c, .f = f, .defaults = c->options };
    t.block = tsr_conformance_rule_memory(c, c->component->options_size);
    for (uint64_t i = 0; i < c->component->n_options; i++) {
        t.o = &c->component->options[i];
        try_option(&t);
    }
    c->options = t.defaults;
}

static void boundary(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = c->kind->exercise(c, false, &e.err);
    switch (st) {
    case TSR_OK:
    case TSR_E_CONFIG:
    case TSR_E_UNSUPPORTED:
    case TSR_E_NUMERIC:
    case TSR_E_NOMEM:
    case TSR_E_IO: /* a string may name a file */
    case TSR_E_DEVICE:
        return;
    default:
        if (st > 0 || st < TSR_E_CANCELLED)
            return; /* status-known reports it */
        tsr_conformance_rule_fail(c, "with %s it answers %s: %s", what,
                                  tsr_conformance_status_name(st), e.text);
    }
}

void tsr_any_options_boundaries(struct tsr_conformance_case *c)
{
    if (c->component->n_options == 0)
        tsr_conformance_rule_skip(c, "it has no options");
    tsr_any_each_boundary(c, boundary);
}
