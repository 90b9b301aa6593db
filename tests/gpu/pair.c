/* pair.c - two devices and what is put on both. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/config.h"

/* ---- devices ------------------------------------------------------------------------ */

static tsr_status set_seed(const struct tsr_component *c, void *options, uint64_t seed,
                           struct tsr_err *err)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    for (uint64_t i = 0; i < c->n_options; i++) {
        const struct tsr_option *o =
            (const struct tsr_option *)(const void *)((const char *)c->options +
                                                      i * c->option_stride);
        if (strcmp(o->name, "seed") == 0)
            return tsr_config_option_set(o, options, text, err);
    }
    return TSR_OK;
}

static tsr_status open_one(struct pair_device *d, struct tsr_registry *r, const char *name,
                           uint64_t seed, uint32_t numerics, struct tsr_err *err)
{
    TSR_TRY(tsr_plugin_spec_backend(&d->spec, r, name, numerics, err));
    const struct tsr_component *c = d->spec.found.component;
    TSR_TRY(set_seed(c, d->spec.options, seed, err));
    d->t = c->iface; /* the plugin's own: the host knows no TSR_CUDA_BENCH (bench.c) */
    return d->t->create(tsr_plugin_registry_host(r), d->spec.options, &d->self, err);
}

tsr_status pair_open(struct pair *p, struct tsr_registry *r, const char *backend, uint64_t seed,
                     uint32_t numerics, struct tsr_err *err)
{
    memset(p, 0, sizeof *p);
    p->random = seed * 2654435761u + 88172645463325252u;
    p->err = (struct tsr_errbuf)TSR_ERRBUF(p->err);
    p->numerics = numerics;
    tsr_status st = open_one(&p->d[1], r, backend, seed, numerics, err);
    if (st == TSR_OK)
        st = open_one(&p->d[0], r, "cpu", 0, TSR_NUMERICS_EXACT, err);
    if (st != TSR_OK)
        pair_close(p);
    return st;
}

void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->d[i].self)
            p->d[i].t->destroy(p->d[i].self);
        tsr_plugin_spec_close(&p->d[i].spec);
    }
    memset(p->d, 0, sizeof p->d);
}

/* ---- numbers ------------------------------------------------------------------------- */

uint64_t pair_draw(struct pair *p, uint64_t below)
{
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return (p->random >> 11) % below;
}

float pair_number(struct pair *p)
{
    float f = (float)((double)pair_draw(p, 1u << 24) / (1 << 23) - 1.0);
    switch (pair_draw(p, 64)) {
    case 0:
        return 0.0f;
    case 1:
        return f * 1e-39f; /* subnormal */
    case 2:
        return f * 40.0f;
    default:
        return f;
    }
}

/* ---- tensors ------------------------------------------------------------------------- */

static uint64_t element_size(uint32_t dtype)
{
    return dtype == TSR_F32 || dtype == TSR_U32 ? 4 : dtype == TSR_I8 ? 1 : 2;
}

bool pair_tensor(struct pair *p, struct pair_tensor *x, uint32_t dtype, uint64_t rows,
                 uint64_t cols, const void *data)
{
    uint64_t size = element_size(dtype), row = cols * size, gap = pair_draw(p, 5) * size;
    uint64_t offset = 16 * size * pair_draw(p, 3);
    memset(x, 0, sizeof *x);
    x->bytes = offset + rows * (row + gap) + 16;
    uint8_t *image = malloc(x->bytes);
    if (!image)
        abort();
    memset(image, 0x5a, x->bytes);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++) {
            uint8_t *to = image + offset + r * (row + gap) + c * size;
            float    f = data ? 0.0f : pair_number(p);
            memcpy(to, data ? (const uint8_t *)data + r * row + c * size : (const void *)&f, size);
        }
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++) {
        struct pair_device *d = &p->d[i];
        x->t[i] = (struct tsr_tensor){ .struct_size = sizeof x->t[i],
                                       .dtype = dtype,
                                       .offset = offset,
                                       .rows = rows,
                                       .cols = cols,
                                       .row_stride = row + gap };
        ok = d->t->buffer_alloc(d->self, x->bytes, &x->t[i].buffer, &p->err.err) == TSR_OK &&
             d->t->upload(d->self, x->t[i].buffer, 0, image, x->bytes, &p->err.err) == TSR_OK;
    }
    free(image);
    return ok;
}

void pair_tensor_free(struct pair *p, struct pair_tensor *x)
{
    for (int i = 0; i < 2; i++)
        p->d[i].t->buffer_free(p->d[i].self, x->t[i].buffer);
    memset(x, 0, sizeof *x);
}

/* Both are no number, of whatever sign and payload: F32 words, or two F16 each of which may be one. */
static bool both_nan(uint32_t u, uint32_t v, uint32_t dtype)
{
    if (dtype == TSR_F32)
        return (u & 0x7fffffffu) > 0x7f800000u && (v & 0x7fffffffu) > 0x7f800000u;
    if (dtype != TSR_F16)
        return false;
    for (int i = 0; i < 32; i += 16) {
        uint32_t a = u >> i & 0xffffu, b = v >> i & 0xffffu;
        if (a != b && ((a & 0x7fffu) <= 0x7c00u || (b & 0x7fffu) <= 0x7c00u))
            return false;
    }
    return true;
}

/* Equal bytes, or no number on both sides. */
static bool same(struct pair *p, const char *what, const uint8_t *a, const uint8_t *b,
                 uint64_t bytes, uint32_t dtype)
{
    for (uint64_t i = 0; i < bytes; i += 4) {
        uint32_t u = 0, v = 0;
        uint64_t n = bytes - i < 4 ? bytes - i : 4;
        memcpy(&u, a + i, n);
        memcpy(&v, b + i, n);
        if (u != v && !both_nan(u, v, dtype)) {
            float f, g;
            memcpy(&f, &u, 4);
            memcpy(&g, &v, 4);
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                           "%s: bytes %llu.. of the output are 0x%08x (%.9g), on the CPU 0x%08x "
                           "(%.9g)",
                           what, (unsigned long long)i, v, (double)g, u, (double)f);
            p->differ++;
            return false;
        }
    }
    return true;
}

/* Puts the operation and the device in front of an error. */
static void explain(struct pair *p, const char *what, int device, bool ok)
{
    char text[300];
    if (ok)
        return;
    (void)snprintf(text, sizeof text, "%.290s", p->err.text);
    (void)tsr_fail(&p->err.err, TSR_E_DEVICE, "%s, %s: %s", what,
                   device ? "on the device" : "on the CPU", text);
}

bool pair_compare(struct pair *p, const char *what, const struct pair_tensor *x)
{
    uint8_t *got[2] = { malloc(x->bytes), malloc(x->bytes) };
    bool     ok = true;
    if (!got[0] || !got[1])
        abort();
    for (int i = 0; i < 2 && ok; i++) {
        struct pair_device *d = &p->d[i];
        ok = d->t->sync(d->self, NULL, &p->err.err) == TSR_OK &&
             d->t->download(d->self, x->t[i].buffer, 0, got[i], x->bytes, &p->err.err) == TSR_OK;
        explain(p, what, i, ok);
    }
    ok = ok && same(p, what, got[0], got[1], x->bytes, x->t[0].dtype);
    free(got[0]);
    free(got[1]);
    return ok;
}

bool pair_queue(struct pair *p, const char *what, const struct tsr_op *op,
                struct pair_tensor *const x[TSR_OP_INPUTS + 1], void *const weight[2])
{
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++) {
        struct pair_device *d = &p->d[i];
        struct tsr_op       o = *op;
        o.struct_size = sizeof o;
        o.out = &x[0]->t[i];
        for (int k = 0; k < TSR_OP_INPUTS; k++)
            o.in[k] = x[k + 1] ? &x[k + 1]->t[i] : NULL;
        o.weight = weight ? weight[i] : NULL;
        ok = d->t->run(d->self, NULL, &o, &p->err.err) == TSR_OK;
        explain(p, what, i, ok);
    }
    return ok;
}

bool pair_run(struct pair *p, const char *what, const struct tsr_op *op,
              struct pair_tensor *x[TSR_OP_INPUTS + 1], void *const weight[2])
{
    p->checked++;
    return pair_queue(p, what, op, x, weight) && pair_compare(p, what, x[0]);
}
