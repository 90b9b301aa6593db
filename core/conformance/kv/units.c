/* KV-cache codecs: shapes, elements and units of the rules. */
#include "conformance/kv/kv.h"

#include <stdio.h>
#include <string.h>

const char *tsr_kv_text(const struct tsr_kv_trial *k)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "%s of %llu elements",
                   k->side == TSR_KV_KEYS ? "keys" : "values", (unsigned long long)k->dim);
    return text;
}

void *tsr_kv_made(struct tsr_conformance_case *c)
{
    const struct tsr_kv_v1 *t = c->iface;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    void                   *self = NULL;
    tsr_conformance_rule_ok(c, t->create(c->host->give, c->options, &self, &e.err), &e, "create()");
    return self;
}

bool tsr_kv_layout_of(struct tsr_conformance_case *c, void *self, uint32_t side, uint64_t dim,
                      struct tsr_kv_layout *l)
{
    const struct tsr_kv_v1 *t = c->iface;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    *l = (struct tsr_kv_layout){ .struct_size = sizeof *l };
    tsr_status st = t->layout(self, side, dim, l, &e.err);
    if (st == TSR_E_UNSUPPORTED && *e.text)
        return false;
    tsr_conformance_rule_ok(c, st, &e, "layout() of a head of %llu elements",
                            (unsigned long long)dim);
    if (l->positions == 0 || l->positions > TSR_KV_BLOCK || l->bytes == 0 ||
        l->bytes > (uint64_t)4 * l->positions * dim + 64)
        tsr_conformance_rule_fail(
            c, "layout() of a head of %llu elements gives units of %u positions and %llu bytes",
            (unsigned long long)dim, l->positions, (unsigned long long)l->bytes);
    return true;
}

void tsr_kv_encode(struct tsr_conformance_case *c, const struct tsr_kv_trial *k, uint64_t n,
                   const float *x, void *units)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(c, k->t->encode(k->self, k->side, k->dim, n, x, units, &e.err), &e,
                            "encode() of %s", tsr_kv_text(k));
}

void tsr_kv_decode(struct tsr_conformance_case *c, const struct tsr_kv_trial *k, uint64_t n,
                   const void *units, float *x)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(c, k->t->decode(k->self, k->side, k->dim, n, units, x, &e.err), &e,
                            "decode() of %s", tsr_kv_text(k));
}

void tsr_kv_each(struct tsr_conformance_case *c, void *self,
                 void (*each)(struct tsr_conformance_case *c, struct tsr_kv_trial *k))
{
    static const uint64_t dims[] = { 1, 7, 33, 64, 80, 128 };
    uint64_t              taken = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (uint32_t side = 0; side < 2; side++) {
            struct tsr_kv_trial k = { .t = c->iface, .self = self, .side = side, .dim = dims[i] };
            if (!tsr_kv_layout_of(c, self, side, k.dim, &k.l))
                continue;
            taken++;
            k.each = k.l.positions * k.dim;
            k.bytes = TSR_KV_UNITS * k.l.bytes;
            k.x = tsr_conformance_rule_room(TSR_KV_UNITS * k.each * sizeof(float));
            k.back = tsr_conformance_rule_room(TSR_KV_UNITS * k.each * sizeof(float));
            k.units = tsr_conformance_rule_room(k.bytes);
            tsr_conformance_rule_normal(c, 2 * i + side, k.x, TSR_KV_UNITS * k.each);
            each(c, &k);
            tsr_conformance_guarded_free(k.x);
            tsr_conformance_guarded_free(k.back);
            tsr_conformance_guarded_free(k.units);
        }
    if (!taken)
        tsr_conformance_rule_fail(c, "layout() takes no head of 1, 7, 33, 64, 80 or 128 elements");
}
