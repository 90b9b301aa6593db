/* Codecs: calibration and its saved state. */
#include "conformance/codec/codec.h"

#include <string.h>

#define U(x)   ((unsigned long long)(x))
#define COLS   UINT64_C(130)
#define ROWS   UINT64_C(5)
#define SILENT (UINT64_C(1) << 30) /* a state of more bytes is a mistake */

static const struct tsr_codec_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

void tsr_codec_rule_calibration_whole(struct tsr_conformance_case *c)
{
    const struct tsr_codec_v1 *t = table(c);
    int there = !!t->observe + !!t->freeze + !!t->state_bytes + !!t->save + !!t->load;
    if (there == 0)
        tsr_conformance_rule_skip(c, "the codec has no calibration");
    if (there != 5)
        tsr_conformance_rule_fail(
            c,
            "%s is NULL while others of observe, freeze, state_bytes, save and load "
            "are there",
            !t->observe       ? "observe"
            : !t->freeze      ? "freeze"
            : !t->state_bytes ? "state_bytes"
            : !t->save        ? "save"
                              : "load");
}

/* The state of a calibrated instance; guarded: in memory of exactly its size. */
static void *saved(struct tsr_conformance_case *c, const void *self, bool guarded,
                   unsigned char fill, uint64_t *bytes)
{
    const struct tsr_codec_v1 *t = table(c);
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    *bytes = t->state_bytes(self);
    if (*bytes == 0 || *bytes > SILENT)
        tsr_conformance_rule_fail(c, "state_bytes() is %llu after freeze(), wanted 1 to 2^30",
                                  U(*bytes));
    void *state = guarded ? tsr_conformance_guarded("the state", *bytes, fill)
                          : tsr_conformance_roomy("the state", *bytes, fill);
    tsr_conformance_rule_ok(c, t->save(self, state, &e.err), &e, "save()");
    return state;
}

static void need_state(struct tsr_conformance_case *c)
{
    const struct tsr_codec_v1 *t = table(c);
    if (!t->observe || !t->freeze || !t->state_bytes || !t->save || !t->load)
        tsr_conformance_rule_skip(c, "the codec has no calibration");
}

void tsr_codec_rule_state_exact(struct tsr_conformance_case *c)
{
    need_state(c);
    void          *self = tsr_codec_made(c, COLS);
    uint64_t       n, m;
    unsigned char *a = saved(c, self, true, 0x00, &n), *b = saved(c, self, true, 0xff, &m);
    if (n != m)
        tsr_conformance_rule_fail(c, "state_bytes() is %llu, then %llu", U(n), U(m));
    if (!tsr_conformance_guarded_intact(a) || !tsr_conformance_guarded_intact(b))
        tsr_conformance_rule_fail(c, "save() writes beyond the %llu bytes of state_bytes()", U(n));
    for (uint64_t i = 0; i < n; i++)
        if (a[i] == 0x00 && b[i] == 0xff)
            tsr_conformance_rule_fail(c, "save() leaves byte %llu of %llu unwritten", U(i), U(n));
}

void tsr_codec_rule_state_loads(struct tsr_conformance_case *c)
{
    need_state(c);
    const struct tsr_codec_v1 *t = table(c);
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    void                      *self = tsr_codec_made(c, COLS), *other = NULL;
    uint64_t                   n, bytes, same;
    void                      *state = saved(c, self, false, 0, &n);
    tsr_conformance_rule_ok(c, t->create(c->host->give, c->options, &other, &e.err), &e,
                            "create()");
    tsr_conformance_rule_ok(c, t->load(other, state, n, &e.err), &e, "load() of a saved state");
    memset(state, 0xa5, n); /* borrowed for the call */
    if (!tsr_codec_bytes(c, self, ROWS, COLS, &bytes))
        tsr_codec_some(c, 0);
    if (!tsr_codec_bytes(c, other, ROWS, COLS, &same) || same != bytes)
        tsr_conformance_rule_fail(c, "wire_bytes() is %llu after freeze() and %llu after load()",
                                  U(bytes), U(same));
    void  *a = tsr_conformance_rule_room(bytes), *b = tsr_conformance_rule_room(bytes);
    float *x = tsr_codec_message(c, 5, ROWS, COLS);
    tsr_codec_encode(c, self, ROWS, COLS, x, a, bytes);
    tsr_codec_encode(c, other, ROWS, COLS, x, b, bytes);
    if (tsr_conformance_rule_differ(a, b, bytes) < bytes)
        tsr_conformance_rule_fail(
            c,
            "behind load() a message of %llu x %llu has another byte %llu than in the "
            "instance that saved the state",
            U(ROWS), U(COLS), U(tsr_conformance_rule_differ(a, b, bytes)));
}

void tsr_codec_rule_state_damaged(struct tsr_conformance_case *c)
{
    need_state(c);
    const struct tsr_codec_v1 *t = table(c);
    uint64_t                   n;
    unsigned char             *state = saved(c, tsr_codec_made(c, COLS), false, 0, &n);
    const uint64_t             lengths[] = { 0, n / 2, n - 1, n + 1 };
    for (uint64_t i = 0; i < 4; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        void             *other = NULL, *part = tsr_conformance_roomy("the state", lengths[i], 0);
        memcpy(part, state, lengths[i] < n ? lengths[i] : n);
        tsr_conformance_rule_ok(c, t->create(c->host->give, c->options, &other, &e.err), &e,
                                "create()");
        tsr_status st = t->load(other, part, lengths[i], &e.err);
        if (st >= 0 || e.text[0] == '\0')
            tsr_conformance_rule_fail(
                c,
                "load() of %llu bytes, where save() wrote %llu, gave %s%s, wanted a "
                "refusal",
                U(lengths[i]), U(n), tsr_conformance_status_name(st),
                st < 0 ? " without a sentence" : "");
        t->destroy(other);
    }
}
