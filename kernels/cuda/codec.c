/* codec.c - the extension of tessera/backend_codec.h: additional streams, and messages coded on the device
 * (codec.cu). */
#include "backend.h"
#include "tessera/backend_codec.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))

#define GRID_MOST 65535u /* more go round */
#define MX_TILE   UINT64_C(2048)
#define MX_BLOCK  (UINT64_C(1) << 24) /* columns of a block at most: a tile has eight */

/* ---- streams ------------------------------------------------------------------------------- */

static tsr_status stream_open(void *self, void **stream, struct tsr_err *err)
{
    const struct tsr_cuda *c = self;
    return c->api->stream_open(c->device, stream, err);
}

static void stream_close(void *self, void *stream)
{
    const struct tsr_cuda *c = self;
    c->api->stream_close(c->device, stream);
}

static tsr_status stream_behind(void *self, void *stream, void *other, struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    TSR_CUDA_ALONE(c);
    tsr_cuda_kept_forget(c);
    tsr_status st = tsr_cuda_flush(c, err); /* pending launches of either list */
    return st != TSR_OK ? st : c->api->stream_behind(c->device, stream, other, err);
}

static void *address(const void *self, const void *buffer)
{
    const struct tsr_cuda_buffer *b = buffer;
    (void)self;
    return (void *)(uintptr_t)b->address;
}

static const void *place(const void *self)
{
    const struct tsr_cuda *c = self;
    return c->api->place(c->device);
}

/* ---- wires --------------------------------------------------------------------------------- */

struct wire {
    struct k_wire        k; /* without the arguments of a call */
    enum tsr_cuda_kernel encode, decode;
    uint32_t             unit;             /* bytes of an element of PLAIN, else 0 */
    uint64_t             list;             /* device memory of the lists, or 0 */
    uint64_t             inv_at, scale_at; /* in it */
};

static tsr_status unknown(const char *what, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_UNSUPPORTED, "a wire with %s is not coded on the device", what);
}

static tsr_status outline_plain(const struct tsr_codec_wire *w, struct wire *o, struct tsr_err *err)
{
    if (w->dtype != TSR_F32 && w->dtype != TSR_BF16 && w->dtype != TSR_F16)
        return unknown("such elements", err);
    o->unit = w->dtype == TSR_F32 ? 4 : 2;
    o->k.dtype = w->dtype;
    o->k.row_bytes = w->cols * o->unit;
    o->encode = KERNEL_k_plain_encode;
    o->decode = KERNEL_k_plain_decode;
    return TSR_OK;
}

uint32_t tsr_cuda_mx_bits(const struct tsr_codec_wire *w, struct k_mx *k)
{
    uint32_t e = w->element >> 8, m = w->element & 0xffu;
    if (m == 0 || e > 5 || e + m > 7 || w->scale_bits < 4 || w->scale_bits > 8 ||
        w->rounding > TSR_WIRE_FLOOR || w->scale_rule > TSR_WIRE_SCALE_CEIL || w->block == 0)
        return 0;
    *k = (struct k_mx){ .rounding = w->rounding,
                        .rule = w->scale_rule,
                        .sign = e + m,
                        /* an integer has its binary point after the first bit */
                        .mant = e ? m : m - 1,
                        .max = (1u << (e + m)) - 1,
                        .special = 1u << 8, /* none */
                        .infinite = 1u << 8,
                        .emin = e ? 2 - (1 << (e - 1)) : 0,
                        .emax = e ? 1 << (e - 1) : 0,
                        .lim = (1 << (w->scale_bits - 1)) - 1 };
    if (w->element == TSR_MX_FP8_E4M3) {
        k->special = 0x7f; /* NaN */
        k->max = 0x7e;
    } else if (w->element == TSR_MX_FP8_E5M2) {
        k->special = k->infinite = 0x7c;
        k->max = 0x7b;
        k->emax = 15;
    }
    return 1 + e + m;
}

static tsr_status outline_mx(const struct tsr_codec_wire *w, struct wire *o, struct tsr_err *err)
{
    struct k_wire *k = &o->k;
    k->bits = tsr_cuda_mx_bits(w, &k->mx);
    if (!k->bits)
        return unknown("such elements or scales", err);
    k->block = cuda_min(w->block, w->cols ? w->cols : 1);
    if (k->block > MX_BLOCK)
        return unknown("such large blocks", err);
    k->scale_bits = w->scale_bits;
    k->tile = 8 * k->block >= MX_TILE ? 8 * k->block : 8 * k->block * (MX_TILE / (8 * k->block));
    k->scale_bytes = (cuda_ceil(w->cols, k->block) * w->scale_bits + 7) / 8;
    k->row_bytes = k->scale_bytes + (w->cols * k->bits + 7) / 8;
    o->encode = KERNEL_k_mx_encode;
    o->decode = KERNEL_k_mx_decode;
    return TSR_OK;
}

static int below(const uint32_t *list, uint64_t n, uint64_t cols)
{
    for (uint64_t i = 0; i < n; i++)
        if (list[i] >= cols)
            return 0;
    return 1;
}

static tsr_status outline_scaled(const struct tsr_codec_wire *w, struct wire *o,
                                 struct tsr_err *err)
{
    struct k_wire *k = &o->k;
    uint64_t       places = w->cols - w->kept;
    if (w->bits < 2 || w->bits > 8)
        return unknown("codes of this width", err);
    if (w->kept > w->cols || (w->kept && !w->feature) ||
        (places && (!w->place || !w->inv || !w->scale)) || !below(w->feature, w->kept, w->cols) ||
        !below(w->place, places, w->cols))
        return unknown("lists that do not fit its columns", err);
    k->bits = w->bits;
    k->kept = w->kept;
    k->row_bytes = 2 * w->kept + (places * w->bits + 7) / 8;
    o->encode = KERNEL_k_scaled_encode;
    o->decode = KERNEL_k_scaled_decode;
    return TSR_OK;
}

/* Copies the lists of a SCALED wire, contiguous, to the device. */
static tsr_status put_lists(struct tsr_cuda *c, const struct tsr_codec_wire *w, struct wire *o,
                            struct tsr_err *err)
{
    uint64_t    places = w->cols - w->kept, at = 0;
    const void *from[] = { w->place, w->inv, w->scale, w->feature };
    uint64_t    n[] = { places, places, places, w->kept }, to[4];
    tsr_status  st =
        c->api->alloc(c->device, 4 * (3 * places + w->kept), TSR_CUDA_DEVICE, &o->list, err);
    for (int i = 0; i < 4 && st == TSR_OK; i++) {
        to[i] = o->list + at;
        at += 4 * n[i];
        if (n[i])
            st = c->api->put(c->device, to[i], from[i], 4 * n[i], err);
    }
    if (st == TSR_OK)
        st = c->api->sync(c->device, NULL, err); /* before work on other streams */
    if (st != TSR_OK)
        return st;
    o->k.place = to[0];
    o->inv_at = to[1];
    o->scale_at = to[2];
    o->k.feature = to[3];
    return TSR_OK;
}

static void wire_free(void *self, void *wire)
{
    struct tsr_cuda       *c = self;
    const struct tsr_host *host = c->host;
    struct wire           *o = wire;
    if (!o)
        return;
    if (o->list)
        c->api->release(c->device, o->list, TSR_CUDA_DEVICE);
    host->release(host->ctx, o, sizeof *o);
}

static tsr_status outline(const struct tsr_codec_wire *w, struct wire *o, struct tsr_err *err)
{
    tsr_status st;
    if (w->cols > UINT32_MAX)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "rows of %llu columns are not coded on the device",
                        U(w->cols));
    *o = (struct wire){ .k = { .cols = w->cols } };
    if (w->kind == TSR_WIRE_PLAIN)
        st = outline_plain(w, o, err);
    else if (w->kind == TSR_WIRE_MX)
        st = outline_mx(w, o, err);
    else if (w->kind == TSR_WIRE_SCALED)
        st = outline_scaled(w, o, err);
    else
        st = tsr_fail(err, TSR_E_UNSUPPORTED, "a wire of kind %u is not known to the device",
                      w->kind);
    if (st == TSR_OK && o->k.row_bytes != w->row_bytes)
        st = tsr_fail(err, TSR_E_UNSUPPORTED,
                      "a wire with rows of %llu bytes is not coded on the device, which has %llu",
                      U(w->row_bytes), U(o->k.row_bytes));
    return st;
}

static tsr_status wire_load(void *self, const struct tsr_codec_wire *w, void **wire,
                            struct tsr_err *err)
{
    struct tsr_cuda       *c = self;
    const struct tsr_host *host = c->host;
    struct wire            o, *keep;
    tsr_status             st = outline(w, &o, err);
    *wire = NULL;
    if (st != TSR_OK)
        return st;
    keep = host->alloc(host->ctx, sizeof *keep, 64);
    if (!keep)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a wire");
    TSR_CUDA_ALONE(c);
    if (w->kind == TSR_WIRE_SCALED && w->cols)
        st = put_lists(c, w, &o, err);
    *keep = o;
    if (st != TSR_OK)
        wire_free(c, keep); /* takes no lock */
    else
        *wire = keep;
    return st;
}

/* ---- coding -------------------------------------------------------------------------------- */

/* The arguments of a launch, checked; x or the message is written. */
static tsr_status arguments(const struct wire *o, const struct tsr_tensor *x,
                            const struct tsr_cuda_buffer *b, uint64_t offset, struct k_wire *k,
                            struct tsr_err *err)
{
    struct tsr_view v;
    uint64_t        bytes;
    tsr_status      st = tsr_cuda_view(&v, x, "a message", "x", TSR_F32, 0, o->k.cols, err);
    if (st != TSR_OK)
        return st;
    if (!b || __builtin_mul_overflow(v.rows, o->k.row_bytes, &bytes) || offset > b->bytes ||
        bytes > b->bytes - offset)
        return tsr_fail(err, TSR_E_INVAL,
                        "a message: %llu rows of %llu bytes at %llu do not lie inside a buffer of "
                        "%llu bytes",
                        U(v.rows), U(o->k.row_bytes), U(offset), U(b ? b->bytes : 0));
    *k = o->k;
    k->x = v.p;
    k->ldx = v.stride / 4;
    k->rows = v.rows;
    k->wire = b->address + offset;
    uint64_t begin = k->wire + k->scale_bytes + 2 * k->kept; /* of a row's codes */
    if (o->unit)
        k->aligned = k->wire % o->unit == 0; /* rows are whole elements */
    else
        k->aligned = k->bits % 4 == 0 && begin % 4 == 0 && k->row_bytes % 4 == 0;
    return TSR_OK;
}

static tsr_status encode(void *self, void *stream, const void *wire, const struct tsr_tensor *x,
                         void *buffer, uint64_t offset, struct tsr_err *err)
{
    struct tsr_cuda        *c = self;
    const struct wire      *o = wire;
    struct tsr_cuda_buffer *b = buffer;
    struct k_wire           k;
    tsr_status              st = arguments(o, x, b, offset, &k, err);
    if (st != TSR_OK)
        return st;
    uint64_t units = k.rows * (cuda_ceil(k.cols - k.kept, o->unit ? 1 : 8) + k.kept);
    uint64_t grid[2] = { cuda_min(cuda_ceil(units, 256), GRID_MOST), 1 };
    k.factor = o->inv_at;
    if (o->encode == KERNEL_k_mx_encode) {
        grid[0] = cuda_ceil(k.cols, k.tile);
        grid[1] = cuda_min(k.rows, GRID_MOST);
    }
    TSR_CUDA_ALONE(c);
    b->written = 1;
    tsr_cuda_kept_forget(c);
    return tsr_cuda_launch(c, stream, o->encode, grid[0], grid[1], 1, 256, &k, sizeof k, err);
}

static tsr_status decode(void *self, void *stream, const void *wire, const void *buffer,
                         uint64_t offset, const struct tsr_tensor *x, int32_t add,
                         struct tsr_err *err)
{
    struct tsr_cuda   *c = self;
    const struct wire *o = wire;
    struct k_wire      k;
    tsr_status         st = arguments(o, x, buffer, offset, &k, err);
    if (st != TSR_OK)
        return st;
    uint64_t                units = k.rows * (cuda_ceil(k.cols - k.kept, o->unit ? 1 : 8) + k.kept);
    struct tsr_cuda_buffer *b = x->buffer;
    k.factor = o->scale_at;
    k.add = add != 0;
    TSR_CUDA_ALONE(c);
    b->written = 1;
    tsr_cuda_kept_forget(c);
    return tsr_cuda_launch(c, stream, o->decode, cuda_min(cuda_ceil(units, 256), GRID_MOST), 1, 1,
                           256, &k, sizeof k, err);
}

const struct tsr_backend_codec_v1 *tsr_cuda_codec(void)
{
    static const struct tsr_backend_codec_v1 table = { .struct_size = sizeof table,
                                                       .stream_open = stream_open,
                                                       .stream_close = stream_close,
                                                       .stream_behind = stream_behind,
                                                       .address = address,
                                                       .place = place,
                                                       .wire_load = wire_load,
                                                       .wire_free = wire_free,
                                                       .encode = encode,
                                                       .decode = decode };
    return &table;
}
