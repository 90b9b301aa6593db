/* messages.c - one message on a device. */
#include "messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AROUND 0x5a

/* ---- codecs ---------------------------------------------------------------------------------- */

bool message_codec_open(struct pair *p, struct tsr_registry *r, struct message_codec *c,
                        const char *text)
{
    memset(c, 0, sizeof *c);
    if (tsr_plugin_spec_open(&c->spec, r, TSR_KIND_CODEC, text, &p->err.err) != TSR_OK)
        return false;
    c->t = c->spec.found.iface;
    return c->t->create(tsr_plugin_registry_host(r), c->spec.options, &c->self, &p->err.err) ==
           TSR_OK;
}

void message_codec_close(struct message_codec *c)
{
    if (c->self)
        c->t->destroy(c->self);
    tsr_plugin_spec_close(&c->spec);
    memset(c, 0, sizeof *c);
}

static struct tsr_codec_job job_of(const struct message *m, const uint8_t *wire)
{
    return (struct tsr_codec_job){ .struct_size = sizeof(struct tsr_codec_job),
                                   .site = m->site,
                                   .source = m->source,
                                   .rows = m->rows,
                                   .cols = m->cols,
                                   .wire = (void *)(uintptr_t)wire,
                                   .wire_bytes = m->bytes };
}

bool message_codec_encode(struct pair *p, const struct message *m, const float *x, uint8_t *wire)
{
    struct tsr_codec_job j = job_of(m, wire);
    j.src = x;
    return m->c->t->encode(m->c->self, &j, &p->err.err) == TSR_OK;
}

bool message_codec_decode(struct pair *p, const struct message *m, const uint8_t *wire, float *x,
                          bool add)
{
    struct tsr_codec_job j = job_of(m, wire);
    j.dst = x;
    return (add ? m->c->t->decode_add : m->c->t->decode)(m->c->self, &j, &p->err.err) == TSR_OK;
}

/* ---- on the device ----------------------------------------------------------------------------- */

static uint64_t x_bytes(const struct message *m)
{
    return 4 * (m->x_at + m->rows * m->ldx + 4);
}
static uint64_t wire_bytes(const struct message *m)
{
    return m->wire_at + m->bytes + 16;
}

bool message_open(struct pair *p, struct message *m, const struct message_codec *c)
{
    const struct pair_device       *d = &p->d[1];
    const struct tsr_codec_wire_v1 *w;
    struct tsr_codec_wire           wire = { .struct_size = sizeof wire };
    m->c = c;
    m->wire = m->stream = m->x_buffer = m->wire_buffer = NULL;
    m->ldx = m->cols + pair_draw(p, 4);
    m->x_at = pair_draw(p, 3);
    m->wire_at = pair_draw(p, 2) ? 4 * pair_draw(p, 5) : pair_draw(p, 19);
    m->t = d->t->extension ? d->t->extension(d->self, TSR_BACKEND_CODEC) : NULL;
    w = c->t->extension ? c->t->extension(c->self, TSR_CODEC_WIRE) : NULL;
    if (!m->t || !w) {
        (void)tsr_fail(&p->err.err, TSR_E_UNSUPPORTED, "%s: %s has no table of wires", m->what,
                       m->t ? "the codec" : "the backend");
        return false;
    }
    return c->t->wire_bytes(c->self, m->rows, m->cols, &m->bytes, &p->err.err) == TSR_OK &&
           w->wire(c->self, m->site, m->source, m->cols, &wire, &p->err.err) == TSR_OK &&
           m->t->wire_load(d->self, &wire, &m->wire, &p->err.err) == TSR_OK &&
           m->t->stream_open(d->self, &m->stream, &p->err.err) == TSR_OK &&
           d->t->buffer_alloc(d->self, x_bytes(m), &m->x_buffer, &p->err.err) == TSR_OK &&
           d->t->buffer_alloc(d->self, wire_bytes(m), &m->wire_buffer, &p->err.err) == TSR_OK;
}

void message_close(struct pair *p, struct message *m)
{
    const struct pair_device *d = &p->d[1];
    if (!m->t)
        return;
    m->t->stream_close(d->self, m->stream);
    m->t->wire_free(d->self, m->wire);
    d->t->buffer_free(d->self, m->x_buffer);
    d->t->buffer_free(d->self, m->wire_buffer);
}

static uint8_t *image(uint64_t bytes)
{
    uint8_t *b = malloc(bytes);
    if (!b)
        abort();
    return memset(b, AROUND, bytes);
}

/* x with what lies around it; rows of floats go in, or come out and leave the pattern. */
static uint8_t *x_image(const struct message *m, const float *x)
{
    uint8_t *b = image(x_bytes(m));
    for (uint64_t r = 0; x && r < m->rows; r++)
        memcpy(b + 4 * (m->x_at + r * m->ldx), x + r * m->cols, 4 * m->cols);
    return b;
}
static void x_take(const struct message *m, uint8_t *b, float *x)
{
    for (uint64_t r = 0; r < m->rows; r++) {
        uint8_t *row = b + 4 * (m->x_at + r * m->ldx);
        memcpy(x + r * m->cols, row, 4 * m->cols);
        memset(row, AROUND, 4 * m->cols);
    }
}

static bool untouched(struct pair *p, const struct message *m, const uint8_t *b, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (b[i] != AROUND) {
            (void)tsr_fail(&p->err.err, TSR_E_NUMERIC,
                           "%s: byte %llu next to the output was written", m->what,
                           (unsigned long long)i);
            return false;
        }
    return true;
}

static struct tsr_tensor view(const struct message *m)
{
    return (struct tsr_tensor){ .struct_size = sizeof(struct tsr_tensor),
                                .dtype = TSR_F32,
                                .buffer = m->x_buffer,
                                .offset = 4 * m->x_at,
                                .rows = m->rows,
                                .cols = m->cols,
                                .row_stride = 4 * m->ldx };
}

/* On a stream of its own, between work on the default one. */
static bool on_stream(struct pair *p, const struct message *m, bool out, bool add)
{
    const struct pair_device *d = &p->d[1];
    struct tsr_tensor         x = view(m);
    struct tsr_err           *err = &p->err.err;
    return m->t->stream_behind(d->self, m->stream, NULL, err) == TSR_OK &&
           (out ? m->t->encode(d->self, m->stream, m->wire, &x, m->wire_buffer, m->wire_at, err)
                : m->t->decode(d->self, m->stream, m->wire, m->wire_buffer, m->wire_at, &x, add,
                               err)) == TSR_OK &&
           m->t->stream_behind(d->self, NULL, m->stream, err) == TSR_OK;
}

bool message_encode(struct pair *p, const struct message *m, const float *x, uint8_t *wire)
{
    const struct pair_device *d = &p->d[1];
    struct tsr_err           *err = &p->err.err;
    uint8_t                  *from = x_image(m, x), *to = image(wire_bytes(m));
    bool ok = d->t->upload(d->self, m->x_buffer, 0, from, x_bytes(m), err) == TSR_OK &&
              d->t->upload(d->self, m->wire_buffer, 0, to, wire_bytes(m), err) == TSR_OK &&
              on_stream(p, m, true, false) &&
              d->t->download(d->self, m->wire_buffer, 0, to, wire_bytes(m), err) == TSR_OK;
    memcpy(wire, to + m->wire_at, m->bytes);
    memset(to + m->wire_at, AROUND, m->bytes);
    ok = ok && untouched(p, m, to, wire_bytes(m));
    free(from);
    free(to);
    return ok;
}

bool message_decode(struct pair *p, const struct message *m, const uint8_t *wire, float *x,
                    bool add)
{
    const struct pair_device *d = &p->d[1];
    struct tsr_err           *err = &p->err.err;
    uint8_t                  *to = x_image(m, add ? x : NULL), *from = image(wire_bytes(m));
    memcpy(from + m->wire_at, wire, m->bytes);
    bool ok = d->t->upload(d->self, m->x_buffer, 0, to, x_bytes(m), err) == TSR_OK &&
              d->t->upload(d->self, m->wire_buffer, 0, from, wire_bytes(m), err) == TSR_OK &&
              on_stream(p, m, false, add) &&
              d->t->download(d->self, m->x_buffer, 0, to, x_bytes(m), err) == TSR_OK;
    x_take(m, to, x);
    ok = ok && untouched(p, m, to, x_bytes(m));
    free(from);
    free(to);
    return ok;
}
