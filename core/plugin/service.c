/* service.c - what host->service offers: tables that the default backend provides. */
#include "plugin/internal.h"

#include "base/log.h"
#include "tessera/backend.h"
#include "tessera/linalg.h"

#include <stdlib.h>
#include <string.h>

void tsr_services_init(struct tsr_services *s, struct tsr_registry *r)
{
    *s = (struct tsr_services){ .registry = r };
    (void)pthread_mutex_init(&s->lock, NULL);
}

void tsr_services_free(struct tsr_services *s)
{
    if (s->backend)
        s->backend->destroy(s->self);
    free(s->options);
    (void)pthread_mutex_destroy(&s->lock);
}

static tsr_status open_backend(struct tsr_services *s, struct tsr_err *err)
{
    struct tsr_found f;
    TSR_TRY(tsr_registry_find(s->registry, TSR_KIND_BACKEND, TSR_DEFAULT_BACKEND, &f, err));
    const struct tsr_backend_v1 *iface = f.iface;
    TSR_TRY(tsr_backend_options(s->registry, f.component, &s->options, err));
    TSR_TRY(iface->create(tsr_registry_host(s->registry), s->options, &s->self, err));
    s->backend = iface;
    s->linalg = iface->extension ? iface->extension(s->self, TSR_LINALG) : NULL;
    if (!s->linalg)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "backend '%s' has no %s", f.component->name,
                        TSR_LINALG);
    return TSR_OK;
}

const void *tsr_services_find(struct tsr_services *s, const char *id)
{
    if (!s || !id || strcmp(id, TSR_LINALG) != 0)
        return NULL;
    pthread_mutex_lock(&s->lock);
    if (!s->tried) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        s->tried = true;
        if (open_backend(s, &e.err) != TSR_OK)
            tsr_logf(TSR_LOG_WARN, "service %s: %s", id, e.text);
    }
    const void *table = s->linalg;
    pthread_mutex_unlock(&s->lock);
    return table;
}
