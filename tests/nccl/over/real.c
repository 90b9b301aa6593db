/* late.h by the backend cuda itself: the plugin, on the driver of the tests. */
#include "../late.h"

#include "over.h"

#include "plugin/spec.h"

#include <stdlib.h>

static struct tsr_registry         *registry;
static const struct tsr_backend_v1 *table;
static int                          device;

tsr_status late_use(struct tsr_registry *r, struct tsr_err *err)
{
    struct tsr_plugin_found found;
    registry = r;
#ifdef TSR_TEST_CUDA
    TSR_TRY(tsr_plugin_registry_add_path(r, TSR_TEST_CUDA, err));
#endif
    TSR_TRY(tsr_plugin_registry_find(r, TSR_KIND_BACKEND, "cuda", &found, err));
    table = found.iface;
    return TSR_OK;
}

int late_failed(void)
{
    return 0; /* whoever waits is told */
}

uint64_t late_taken(void)
{
    return standin_taken();
}

void late_elsewhere(int other_device)
{
    device = other_device;
}

const struct tsr_backend_v1 *late_table(void)
{
    return table;
}

tsr_status late_open(void **self, struct tsr_err *err)
{
    struct tsr_plugin_spec s = { .text = NULL };
    char                   name[24];
    (void)snprintf(name, sizeof name, "cuda:device=%d", device);
    tsr_status st = tsr_plugin_spec_backend(&s, registry, name, 0, err);
    if (st == TSR_OK)
        st = tsr_plugin_spec_backend_create(&s, registry, self, err);
    tsr_plugin_spec_close(&s);
    return st;
}

void late_close(void *self)
{
    table->destroy(self);
}
