/* host_backend.c - work for a backend, which then stays for those that ask it for services; and the
 * list of the kinds. */
#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <tessera/backend.h>
#include <tessera/codec.h>
#include <tessera/quantizer.h>
#include <tessera/solver.h>
#include <tessera/transport.h>

/* Longer than ours where the plugin knows more: nothing of that may be written. */
struct guarded_props {
    struct tsr_backend_props props;
    unsigned char            behind[128];
};

static const struct tsr_backend_v1 *kept;
static struct tsr_backend_v1        kept_table;
static void                        *kept_self, *kept_options;

static bool run_backend(struct user *u, const struct tsr_backend_v1 *b, void *self)
{
    enum { N = 16 };
    float                x[2 * N], sum[2 * N];
    struct guarded_props p = { .props = { .struct_size = sizeof p.props } };
    void                *buffer = NULL;
    for (uint64_t i = 0; i < 2 * N; i++)
        x[i] = noise(i);
    memset(p.behind, 0xcd, sizeof p.behind);
    if (b->properties(self, &p.props, &u->err) != TSR_OK || !p.props.device)
        return SAY(u, "properties() failed");
    if (!untouched(p.behind, sizeof p.behind))
        return SAY(u, "properties() wrote behind the host's struct");
    if (b->buffer_alloc(self, sizeof x, &buffer, &u->err) != TSR_OK)
        return SAY(u, "buffer_alloc() failed");
    struct tsr_tensor one = { .struct_size = sizeof one,
                              .dtype = TSR_F32,
                              .buffer = buffer,
                              .rows = 1,
                              .cols = N,
                              .row_stride = N * 4 };
    struct tsr_tensor two = one;
    two.offset = N * 4;
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_ADD, .out = &two, .in = { &one, &two }
    };
    bool ok = b->upload(self, buffer, 0, x, sizeof x, &u->err) == TSR_OK &&
              b->run(self, NULL, &op, &u->err) == TSR_OK &&
              b->sync(self, NULL, &u->err) == TSR_OK &&
              b->download(self, buffer, 0, sum, sizeof sum, &u->err) == TSR_OK;
    if (!ok)
        u->wrong = "ADD failed";
    for (uint64_t i = 0; ok && i < N; i++)
        if (!(sum[N + i] == x[i] + x[N + i]))
            ok = SAY(u, "ADD gave another sum");
    b->buffer_free(self, buffer);
    return ok;
}

bool use_backend(struct user *u, const void *iface)
{
    backend_close();
    memcpy(&kept_table, iface, sizeof kept_table);
    kept_options = u->options;
    if (kept_table.create(u->host, u->options, &kept_self, &u->err) != TSR_OK)
        return SAY(u, "create() failed");
    kept = &kept_table;
    return run_backend(u, kept, kept_self);
}

const void *backend_service(const char *id)
{
    return kept && kept->extension ? kept->extension(kept_self, id) : NULL;
}

void backend_close(void)
{
    if (kept)
        kept->destroy(kept_self);
    free(kept_options);
    kept_options = NULL;
    kept = NULL;
}

const struct kind *kind_find(const char *id)
{
    static const struct kind kinds[] = {
        { TSR_KIND_QUANTIZER, sizeof(struct tsr_quantizer_v1), use_quantizer },
        { TSR_KIND_CODEC, sizeof(struct tsr_codec_v1), use_codec },
        { TSR_KIND_TRANSPORT, sizeof(struct tsr_transport_v1), use_transport },
        { TSR_KIND_SOLVER, sizeof(struct tsr_solver_v1), use_solver },
        { TSR_KIND_BACKEND, sizeof(struct tsr_backend_v1), use_backend },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].id, id) == 0)
            return &kinds[i];
    return NULL;
}
