/* codecs.c - drawn messages: the device's bytes and numbers beside those of the codecs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

static const uint64_t    widths[] = { 1,  3,   7,   8,   9,   31,   32,   33,   64,
                                      70, 100, 257, 448, 600, 1030, 2048, 2049, 4200 };
static const char *const elements[] = { "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3",
                                        "fp5_e3m1", "fp5_e2m2", "fp5_e1m3", "fp4_e2m1",
                                        "fp4_e1m2", "fp3_e1m1", "int8",     "int6",
                                        "int5",     "int4",     "int3",     "int2" };
static const char *const roundings[] = { "even", "nearest", "floor" };
static const char *const rules[] = { "floor", "even", "ceil" };
static const uint32_t    blocks[] = { 32, 16, 8, 1, 3, 33, 100, 512, 4096 };

#define N(list)    (sizeof(list) / sizeof(list)[0])
#define PICK(list) (list)[pair_draw(p, N(list))]

/* Mostly near 1; each bit pattern of an F32 now and then, halves of steps often. */
static float number(struct pair *p)
{
    static const float odd[] = { 0.0f,      -0.0f,     0.5f,      1.5f,       -2.5f,    448.0f,
                                 57344.0f,  1e-45f,    -1.1e-38f, 3.4028e38f, -3e38f,   65520.0f,
                                 0x1p-127f, 0x1p-126f, 0x1p-25f,  0x1.8p-24f, 65519.9f, 6.0f };
    uint32_t           u;
    float              f;
    switch (pair_draw(p, 24)) {
    case 0:
        return odd[pair_draw(p, N(odd))];
    case 1:
        return rintf(pair_number(p) * 16.0f) / 8.0f;
    case 2: /* any bits; a message with a NaN in most blocks would show little */
        u = (uint32_t)pair_draw(p, UINT64_C(1) << 32);
        memcpy(&f, &u, 4);
        return pair_draw(p, 8) || f != f || isinf(f) ? pair_number(p) : f;
    default:
        return pair_number(p);
    }
}

static void fill(struct pair *p, float *x, uint64_t n)
{
    static const uint32_t none[] = { 0x7fc00000u, 0xffc12345u, 0x7f800000u, 0xff800000u,
                                     0x7f812345u };
    uint64_t              rare = 40 + pair_draw(p, 2000);
    for (uint64_t i = 0; i < n; i++) {
        x[i] = number(p);
        if (pair_draw(p, rare) == 0)
            memcpy(&x[i], &none[pair_draw(p, N(none))], 4);
    }
}

/* The same bits; both are no number. */
static bool same(struct pair *p, const struct message *m, const char *how, const float *got,
                 const float *want)
{
    for (uint64_t i = 0; i < m->rows * m->cols; i++)
        if (memcmp(&got[i], &want[i], 4) != 0 && !(isnan(got[i]) && isnan(want[i]))) {
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                           "%s, %s: row %llu, column %llu is %a, from the codec %a", m->what, how,
                           (unsigned long long)(i / m->cols), (unsigned long long)(i % m->cols),
                           (double)got[i], (double)want[i]);
            return false;
        }
    return true;
}

static bool same_frame(struct pair *p, const struct message *m, const uint8_t *got,
                       const uint8_t *want)
{
    for (uint64_t i = 0; i < m->bytes; i++)
        if (got[i] != want[i]) {
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                           "%s: byte %llu of %llu of the message is 0x%02x, from the codec 0x%02x",
                           m->what, (unsigned long long)i, (unsigned long long)m->bytes, got[i],
                           want[i]);
            return false;
        }
    return true;
}

struct numbers {
    float   *x, *y, *z;
    uint8_t *a, *b;
};

/* There, and back twice: what was written, and bytes that nobody wrote. */
static bool both_ways(struct pair *p, const struct message *m, const struct numbers *n)
{
    uint64_t count = m->rows * m->cols;
    fill(p, n->x, count);
    if (!message_codec_encode(p, m, n->x, n->a) || !message_encode(p, m, n->x, n->b) ||
        !same_frame(p, m, n->b, n->a))
        return false;
    for (int k = 0; k < 2; k++) {
        memset(n->y, 0, 4 * count);
        memset(n->z, 0, 4 * count);
        if (!message_codec_decode(p, m, n->a, n->y, false) ||
            !message_decode(p, m, n->a, n->z, false) ||
            !same(p, m, k ? "of any bytes" : "decoded", n->z, n->y))
            return false;
        memcpy(n->y, n->x, 4 * count);
        memcpy(n->z, n->x, 4 * count);
        if (!message_codec_decode(p, m, n->a, n->y, true) ||
            !message_decode(p, m, n->a, n->z, true) || !same(p, m, "added", n->z, n->y))
            return false;
        for (uint64_t i = 0; i < m->bytes; i++)
            n->a[i] = (uint8_t)pair_draw(p, 256);
    }
    return true;
}

/* Two ranks at a site, of a text with a few wide features. */
static bool calibrate(struct pair *p, const struct message_codec *c, const struct message *m)
{
    float *x = malloc(3 * m->cols * sizeof *x);
    bool   ok = x != NULL;
    for (uint32_t source = 0; ok && source < 2; source++) {
        for (uint64_t i = 0; i < 3 * m->cols; i++)
            x[i] = pair_number(p) * (i % m->cols % 7 == 3 ? 8.0f : 1.0f) *
                   (i % m->cols % 31 == 5 ? 0.0f : 1.0f);
        struct tsr_codec_job j = { .struct_size = sizeof j,
                                   .site = m->site,
                                   .source = source,
                                   .rows = 3,
                                   .cols = m->cols,
                                   .src = x };
        ok = c->t->observe(c->self, &j, &p->err.err) == TSR_OK;
    }
    free(x);
    return ok && c->t->freeze(c->self, &p->err.err) == TSR_OK;
}

static bool check(struct pair *p, struct tsr_registry *r, const char *text, uint64_t rows,
                  uint64_t cols)
{
    char                 what[160];
    struct message_codec c = { .self = NULL };
    struct message       m = { .what = what, .site = 5, .rows = rows, .cols = cols };
    struct numbers n = { malloc(4 * rows * cols), malloc(4 * rows * cols), malloc(4 * rows * cols),
                         NULL, NULL };
    (void)snprintf(what, sizeof what, "%s, %llu x %llu", text, (unsigned long long)rows,
                   (unsigned long long)cols);
    bool ok = n.x && n.y && n.z && message_codec_open(p, r, &c, text);
    m.source = (uint32_t)pair_draw(p, 2);
    if (ok && c.t->observe)
        ok = calibrate(p, &c, &m);
    ok = ok && message_open(p, &m, &c);
    if (ok) {
        n.a = malloc(m.bytes);
        n.b = malloc(m.bytes);
        ok = n.a && n.b && both_ways(p, &m, &n);
    }
    if (!ok && !strstr(p->err.text, text)) {
        char why[300];
        (void)snprintf(why, sizeof why, "%.290s", p->err.text);
        (void)tsr_fail(&p->err.err, TSR_E_DEVICE, "%s: %s", what, why);
    }
    message_close(p, &m);
    message_codec_close(&c);
    free(n.x);
    free(n.y);
    free(n.z);
    free(n.a);
    free(n.b);
    p->checked++;
    return ok;
}

static bool mx(struct pair *p, struct tsr_registry *r, uint32_t element, uint32_t block,
               uint32_t scale_bits, uint32_t rounding, uint32_t rule, uint64_t rows, uint64_t cols)
{
    char text[128];
    (void)snprintf(text, sizeof text,
                   "mx:element=%s,block=%u,scale_bits=%u,rounding=%s,scale_rule=%s",
                   elements[element], block, scale_bits, roundings[rounding], rules[rule]);
    return check(p, r, text, rows, cols);
}

static bool drawn(struct pair *p, struct tsr_registry *r, uint64_t i)
{
    static const char *const plain[] = { "plain", "plain:dtype=bf16", "plain:dtype=f16" };
    static const uint32_t    one_in[] = { 1, 2, 5, 64 };
    uint64_t                 rows = 1 + pair_draw(p, pair_draw(p, 6) ? 5 : 40), cols = PICK(widths);
    char                     text[64];
    if (i % 8 == 0)
        return check(p, r, PICK(plain), rows, cols);
    if (i % 8 < 4) {
        (void)snprintf(text, sizeof text, "int4_bf16:bits=%u,%s%u", 2 + (uint32_t)pair_draw(p, 7),
                       pair_draw(p, 5) ? "one_in=" : "features=none,one_in=", PICK(one_in));
        return check(p, r, text, rows, cols);
    }
    return mx(p, r, (uint32_t)pair_draw(p, N(elements)), PICK(blocks),
              pair_draw(p, 2) ? 8 : 4 + (uint32_t)pair_draw(p, 5), (uint32_t)pair_draw(p, 3),
              (uint32_t)pair_draw(p, 3), rows, cols);
}

bool pair_check_codecs(struct pair *p, struct tsr_registry *r, uint64_t count)
{
    const char *all = getenv("TSR_TEST_ALL");
    for (uint64_t i = 0; i < count; i++)
        if (!drawn(p, r, i))
            return false;
    if (!all || strcmp(all, "1") != 0)
        return true;
    for (uint32_t e = 0; e < N(elements); e++)
        for (uint32_t k = 0; k < 45; k++)
            for (uint32_t b = 0; b < N(blocks); b++)
                if (!mx(p, r, e, blocks[b], 4 + k % 5, k / 5 % 3, k / 15, 1 + k % 3,
                        widths[pair_draw(p, N(widths))]))
                    return false;
    return true;
}
