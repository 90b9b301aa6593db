/* backend.c - a backend in the words of ABI minor 0: memory and ADD, the rest is declined.  Built
 * against the headers of every minor; a later one adds a use of what came with it. */
#include <string.h>
#include <tessera/backend.h>

struct buffer {
    uint64_t bytes;
    char     pad[56];
    char     data[];
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)opts;
    (void)err;
#if defined(TSR_TEST_LATER) /* an older host ends before this member, whatever lies behind it */
    if (!TSR_HAS(struct tsr_host, host, later) != (host->abi_minor < TSR_ABI_MINOR))
        return tsr_fail(err, TSR_E_INVAL, "TSR_HAS sees a member that the host does not have");
#endif
    *self = (void *)(uintptr_t)host; /* all the state that there is */
    return TSR_OK;
}

static void destroy(void *self)
{
    (void)self;
}

static tsr_status properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    (void)self;
    (void)err;
    p->deterministic = 1;
    p->device = "memory";
    p->memory_bytes = p->free_bytes = UINT64_C(1) << 30;
#if defined(TSR_TEST_LATER) /* written only where the host has room for it */
    TSR_SET(struct tsr_backend_props, p, later, 1);
#endif
    return TSR_OK;
}

static tsr_status buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err)
{
    const struct tsr_host *host = self;
    struct buffer         *b = NULL;
    if (bytes < UINT64_C(1) << 40)
        b = host->alloc(host->ctx, sizeof *b + bytes, 64);
    if (!b)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes", (unsigned long long)bytes);
    memset(b, 0, sizeof *b + bytes);
    b->bytes = bytes;
    *buffer = b;
    return TSR_OK;
}

static void buffer_free(void *self, void *buffer)
{
    const struct tsr_host *host = self;
    struct buffer         *b = buffer;
    if (b)
        host->release(host->ctx, b, sizeof *b + b->bytes);
}

static tsr_status inside(const struct buffer *b, uint64_t offset, uint64_t bytes,
                         struct tsr_err *err)
{
    if (offset <= b->bytes && bytes <= b->bytes - offset)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INVAL, "bytes %llu and %llu more lie outside a buffer of %llu",
                    (unsigned long long)offset, (unsigned long long)bytes,
                    (unsigned long long)b->bytes);
}

static tsr_status upload(void *self, void *buffer, uint64_t offset, const void *src, uint64_t bytes,
                         struct tsr_err *err)
{
    struct buffer *b = buffer;
    tsr_status     st = inside(b, offset, bytes, err);
    (void)self;
    if (st == TSR_OK)
        memcpy(b->data + offset, src, bytes);
    return st;
}

static tsr_status download(void *self, const void *buffer, uint64_t offset, void *dst,
                           uint64_t bytes, struct tsr_err *err)
{
    const struct buffer *b = buffer;
    tsr_status           st = inside(b, offset, bytes, err);
    (void)self;
    if (st == TSR_OK)
        memcpy(dst, b->data + offset, bytes);
    return st;
}

static tsr_status weight_load(void *self, const struct tsr_weight_desc *w, void **weight,
                              struct tsr_err *err)
{
    (void)self;
    (void)weight;
    return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: no weights are read", w->name);
}

static void weight_free(void *self, void *weight)
{
    (void)self;
    (void)weight;
}

static uint64_t weight_bytes(const void *self, const void *weight)
{
    (void)self;
    (void)weight;
    return 0;
}

static float *row_of(const struct tsr_tensor *t, uint64_t r)
{
    void *at = ((struct buffer *)t->buffer)->data + t->offset + r * t->row_stride;
    return at;
}

static tsr_status run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    (void)self;
    (void)stream;
    if (op->kind != TSR_OP_ADD)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "operation %u is not offered", op->kind);
    for (uint64_t r = 0; r < op->out->rows; r++) {
        float       *out = row_of(op->out, r);
        const float *a = row_of(op->in[0], r), *b = row_of(op->in[1], r);
        for (uint64_t k = 0; k < op->out->cols; k++)
            out[k] = a[k] + b[k];
    }
    return TSR_OK;
}

static tsr_status sync(void *self, void *stream, struct tsr_err *err)
{
    (void)self;
    (void)stream;
    (void)err;
    return TSR_OK;
}

static const struct tsr_backend_v1 table = { .struct_size = sizeof table,
                                             .create = create,
                                             .destroy = destroy,
                                             .properties = properties,
                                             .buffer_alloc = buffer_alloc,
                                             .buffer_free = buffer_free,
                                             .upload = upload,
                                             .download = download,
                                             .weight_load = weight_load,
                                             .weight_free = weight_free,
                                             .weight_bytes = weight_bytes,
                                             .run = run,
                                             .sync = sync };

static const struct tsr_component component = { .struct_size = sizeof component,
                                                .option_stride = sizeof(struct tsr_option),
                                                .kind = TSR_KIND_BACKEND,
                                                .name = "sample",
                                                .summary = "Memory and ADD.",
                                                .iface = &table };

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(sample_backend) = {
    TSR_PLUGIN_HEADER,    .id = "org.example.sample.backend",
    .version = "1.0.0",   .license = "Apache-2.0",
    .build = __VERSION__, .components = components,
    .n_components = 1,
};
