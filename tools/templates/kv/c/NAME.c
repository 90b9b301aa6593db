/* @NAME@ - keys and values as the upper halves of F32, which are BF16. */
#include <tessera/kv.h>

#include <math.h>
#include <string.h>

struct options {
    int32_t nearest;
};

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(struct options, nearest, 1, "Round to nearest; otherwise towards zero."),
};

struct codec {
    const struct tsr_host *host;
    const struct options  *o;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct codec *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *c);
    *c = (struct codec){ host, opts };
    *self = c;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct codec *c = self;
    if (c)
        c->host->release(c->host->ctx, c, sizeof *c);
}

/* A unit is one position, for keys and values alike.  A unit of TSR_KV_BLOCK positions could scale each channel. */
static tsr_status layout(const void *self, uint32_t side, uint64_t head_dim,
                         struct tsr_kv_layout *l, struct tsr_err *err)
{
    (void)side;
    (void)err;
    l->positions = 1;
    l->bytes = 2 * head_dim;
    l->error = ((const struct codec *)self)->o->nearest ? 0x1p-8 : 0x1p-7;
    return TSR_OK;
}

/* Units have no alignment, hence memcpy. */
static tsr_status encode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const float *x, void *units, struct tsr_err *err)
{
    int nearest = ((const struct codec *)self)->o->nearest;
    (void)side;
    (void)err;
    for (uint64_t i = 0; i < n * head_dim; i++) {
        uint32_t bits;
        uint16_t half;
        memcpy(&bits, x + i, 4);
        if (isnan(x[i]))
            bits = 0x7fc00000u; /* the upper half of another NaN may be an infinity */
        else if (nearest)
            bits += 0x7fffu + (bits >> 16 & 1u);
        half = (uint16_t)(bits >> 16);
        memcpy((char *)units + 2 * i, &half, 2);
    }
    return TSR_OK;
}

static tsr_status decode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const void *units, float *x, struct tsr_err *err)
{
    (void)self;
    (void)side;
    (void)err;
    for (uint64_t i = 0; i < n * head_dim; i++) {
        uint16_t half;
        memcpy(&half, (const char *)units + 2 * i, 2);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(x + i, &bits, 4);
    }
    return TSR_OK;
}

/* score() and mix() are NULL: the host decodes.  They save that, where products with the units themselves are faster. */
static const struct tsr_kv_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .layout = layout,
    .encode = encode, .decode = decode,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_KV, .name = "@NAME@", .iface = &table,
    .summary = "KV cache of BF16.",
    .options = options, .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
