/* The frozen calibration as bytes: docs/formats/codecs.md draws them.  All numbers little-endian. */
#include "int4_bf16.h"

#include <math.h>
#include <string.h>

#define MAGIC UINT32_C(0x31463449) /* "I4F1" */

/* magic, bits, features, sites; one_in */
#define HEAD 24u
/* site, number of present sources, cols */
#define SITE 16u

static uint64_t there(const struct i4_site *s)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < s->sources; r++)
        n += s->source[r].range != NULL;
    return n;
}

uint64_t i4_state_bytes(const void *self)
{
    const struct i4 *c = self;
    uint64_t         n = HEAD;
    for (uint32_t i = 0; i < c->sites; i++)
        if (c->site[i])
            n += SITE + 4 * c->site[i]->k + there(c->site[i]) * (4 + 4 * c->site[i]->cols);
    return n;
}

static unsigned char *put(unsigned char *p, const void *v, uint64_t bytes)
{
    memcpy(p, v, bytes);
    return p + bytes;
}

static unsigned char *put_u32(unsigned char *p, uint32_t v)
{
    return put(p, &v, sizeof v);
}

tsr_status i4_save(const void *self, void *state, struct tsr_err *err)
{
    const struct i4 *c = self;
    unsigned char   *p = state;
    uint32_t         sites = 0;
    if (!c->frozen)
        return tsr_fail(err, TSR_E_INVAL, NAME ": save() before freeze()");
    for (uint32_t i = 0; i < c->sites; i++)
        sites += c->site[i] != NULL;
    p = put_u32(p, MAGIC);
    p = put_u32(p, c->bits);
    p = put_u32(p, c->features);
    p = put_u32(p, sites);
    p = put(p, &c->one_in, 8);
    for (uint32_t i = 0; i < c->sites; i++) {
        const struct i4_site *s = c->site[i];
        if (!s)
            continue;
        p = put_u32(p, i);
        p = put_u32(p, (uint32_t)there(s));
        p = put(p, &s->cols, 8);
        p = put(p, s->chosen, 4 * s->k);
        for (uint32_t r = 0; r < s->sources; r++)
            if (s->source[r].range) {
                p = put_u32(p, r);
                p = put(p, s->source[r].range, 4 * s->cols);
            }
    }
    return TSR_OK;
}

/* ---- back -------------------------------------------------------------------- */

struct reader {
    const unsigned char *p;
    uint64_t             left;
};

static int take(struct reader *r, void *v, uint64_t bytes)
{
    if (r->left < bytes)
        return 0;
    memcpy(v, r->p, bytes);
    r->p += bytes;
    r->left -= bytes;
    return 1;
}

static tsr_status damaged(struct tsr_err *err, const char *what)
{
    return tsr_fail(err, TSR_E_INVAL, NAME ": the state is damaged: %s; calibrate again", what);
}

static tsr_status load_source(struct i4 *c, struct reader *in, uint32_t site, uint64_t cols,
                              struct tsr_err *err)
{
    struct i4_site *s;
    uint32_t        source;
    if (!take(in, &source, 4) || in->left / 4 < cols)
        return damaged(err, "it ends early");
    tsr_status st = i4_site_make(c, site, source, cols, &s, err);
    if (st != TSR_OK)
        return st;
    struct i4_source *q = &s->source[source];
    if (q->range)
        return damaged(err, "a source is there twice");
    q->range = i4_new(c, cols, sizeof *q->range);
    if (!q->range)
        return tsr_fail(err, TSR_E_NOMEM, NAME ": out of memory: a state");
    (void)take(in, q->range, 4 * cols);
    for (uint64_t j = 0; j < cols; j++)
        if (!(q->range[j] >= 0 && isfinite(q->range[j])))
            return damaged(err, "a range is not a number from 0 on");
    return TSR_OK;
}

static tsr_status load_site(struct i4 *c, struct reader *in, struct tsr_err *err)
{
    uint32_t        site, sources;
    uint64_t        cols;
    struct i4_site *s;
    if (!take(in, &site, 4) || !take(in, &sources, 4) || !take(in, &cols, 8))
        return damaged(err, "it ends early");
    if (sources == 0 || cols == 0 || cols > in->left / 4 || i4_kept(c, cols) > in->left / 4)
        return damaged(err, "a site says more than there is");
    if (site < c->sites && c->site[site])
        return damaged(err, "a site is there twice");
    tsr_status st = i4_site_make(c, site, 0, cols, &s, err);
    if (st != TSR_OK)
        return st;
    s->chosen = i4_new(c, s->k, sizeof *s->chosen);
    if (!s->chosen)
        return tsr_fail(err, TSR_E_NOMEM, NAME ": out of memory: a state");
    if (!take(in, s->chosen, 4 * s->k))
        return damaged(err, "it ends early");
    for (uint64_t i = 0; i < s->k; i++)
        if (s->chosen[i] >= cols || (i && s->chosen[i] <= s->chosen[i - 1]))
            return damaged(err, "its features do not ascend");
    for (uint32_t r = 0; st == TSR_OK && r < sources; r++)
        st = load_source(c, in, site, cols, err);
    return st == TSR_OK ? i4_site_finish(c, s, err) : st;
}

static tsr_status load_all(struct i4 *c, struct reader *in, struct tsr_err *err)
{
    uint32_t head[4];
    uint64_t one_in;
    if (!take(in, head, 16) || !take(in, &one_in, 8) || head[0] != MAGIC)
        return damaged(err, "it does not begin as one");
    if (head[1] != c->bits || head[2] != c->features || one_in != c->one_in)
        return tsr_fail(err, TSR_E_INVAL,
                        NAME
                        ": the state was calibrated with other options (bits %u, one_in %llu): "
                        "use those, or calibrate again",
                        head[1], U(one_in));
    tsr_status st = head[3] ? TSR_OK : damaged(err, "it has no site");
    for (uint32_t i = 0; st == TSR_OK && i < head[3]; i++)
        st = load_site(c, in, err);
    if (st == TSR_OK && in->left)
        st = damaged(err, "something follows its last site");
    return st;
}

tsr_status i4_load(void *self, const void *state, uint64_t bytes, struct tsr_err *err)
{
    struct i4    *c = self;
    struct reader in = { state, state ? bytes : 0 };
    if (c->sites)
        return tsr_fail(err, TSR_E_INVAL, NAME ": load() into a codec that has a calibration");
    tsr_status st = load_all(c, &in, err);
    if (st != TSR_OK)
        i4_sites_free(c);
    else
        c->frozen = 1;
    return st;
}
