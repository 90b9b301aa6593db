/* layout.c - panels in and out (tessera/backend_layout.h): byte-identical for every instruction set, so a
 * file of them runs on each. docs/formats/cpu-panels.md draws them; a change of the layout must raise the
 * revision. */
#include <string.h>

#include "backend.h"

#define PANELS_ID       "tessera.cpu.panels"
#define PANELS_REVISION 3u
#define PANELS_ALIGN    64u

/* d without codes and meta: the row stride does not matter. */
static struct tsr_weight_desc without_rows(const struct tsr_weight_desc *d)
{
    struct tsr_weight_desc bare = { 0 };
    memcpy(&bare, d, cpu_min(d->struct_size, sizeof bare)); /* an older host's is shorter */
    bare.struct_size = sizeof bare;
    bare.codes = bare.meta = NULL;
    bare.code_stride = bare.meta_stride = UINT64_MAX;
    return bare;
}

static tsr_status weight_layout(const void *self, const struct tsr_weight_desc *d,
                                struct tsr_weight_layout *l, struct tsr_err *err)
{
    struct tsr_weight_desc bare = without_rows(d);
    struct tsr_cpu_weight  w;
    tsr_status             st = tsr_cpu_weight_outline(&bare, &w, err);
    (void)self;
    if (st != TSR_OK)
        return st;
    l->id = PANELS_ID;
    l->revision = PANELS_REVISION;
    l->target = NULL;
    l->bytes = w.data_bytes;
    l->align = PANELS_ALIGN;
    return TSR_OK;
}

static tsr_status weight_read(void *self, const void *weight, uint64_t offset, void *dst,
                              uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cpu              *c = self;
    const struct tsr_cpu_weight *w = weight;
    if (!w || !dst || offset > w->data_bytes || bytes > w->data_bytes - offset)
        return tsr_fail(err, TSR_E_INVAL,
                        "weight_read: %llu bytes at %llu do not lie in a weight "
                        "of %llu",
                        (unsigned long long)bytes, (unsigned long long)offset,
                        (unsigned long long)(w ? w->data_bytes : 0));
    if (!w->borrowed)
        c->mem->open(w->data, w->data_bytes);
    memcpy(dst, w->data + offset, bytes);
    if (!w->borrowed)
        c->mem->close(w->data, w->data_bytes);
    return TSR_OK;
}

static tsr_status weight_borrow(void *self, const struct tsr_weight_desc *d, const void *data,
                                uint64_t bytes, void **weight, struct tsr_err *err)
{
    if (!data || (uintptr_t)data % PANELS_ALIGN != 0)
        return tsr_fail(err, TSR_E_INVAL, "weight '%s': its panels are not aligned to %u bytes",
                        d->name ? d->name : "?", PANELS_ALIGN);
    struct tsr_weight_desc bare = without_rows(d);
    return tsr_cpu_weight_over(self, &bare, data, bytes, weight, err);
}

const struct tsr_backend_layout_v1 *tsr_cpu_layout(void)
{
    static const struct tsr_backend_layout_v1 table = { .struct_size = sizeof table,
                                                        .weight_layout = weight_layout,
                                                        .weight_read = weight_read,
                                                        .weight_borrow = weight_borrow };
    return &table;
}
