/* service.c - what host->service offers: tables that a backend provides, and a rank's place. */
#include "plugin/internal.h"

#include "base/log.h"
#include "tessera/backend.h"
#include "tessera/linalg.h"

#include <string.h>

static void close_backend(struct tsr_plugin_services *s)
{
    if (s->backend)
        s->backend->destroy(s->self);
    tsr_plugin_spec_close(&s->spec);
    s->backend = NULL;
    s->self = NULL;
    s->linalg = NULL;
}

/* A separate backend for the service, with its table; NULL: none. */
static tsr_status open_backend(struct tsr_plugin_services *s, const char *name, uint32_t numerics,
                               struct tsr_err *err)
{
    tsr_status st = tsr_plugin_spec_backend(&s->spec, s->registry, name, numerics, err);
    if (st == TSR_OK)
        st = tsr_plugin_spec_backend_create(&s->spec, s->registry, &s->self, err);
    if (st != TSR_OK) {
        close_backend(s);
        return st;
    }
    s->backend = s->spec.found.iface;
    s->linalg = s->backend->extension ? s->backend->extension(s->self, TSR_LINALG) : NULL;
    return TSR_OK;
}

static bool is_default(const char *name)
{
    return !name || strcmp(name, TSR_PLUGIN_DEFAULT_BACKEND) == 0;
}

/* The backend that runs the models also does their linear algebra, if it supports it and a different
 * summation order is allowed.  If not, that is not an error, and *done stays false.  A backend
 * requested by name that does not start is an error, as elsewhere. */
static tsr_status open_device(struct tsr_plugin_services *s, bool *done, struct tsr_err *err)
{
    const struct tsr_plugin_run_on *on = tsr_plugin_registry_on(s->registry);
    const char                     *name = on->backend;
    bool                            automatic = name && strcmp(name, "auto") == 0;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    *done = false;
    /* a device's memory is not there in a copy of this process */
    if (is_default(name) || tsr_plugin_registry_isolation(s->registry) ||
        on->numerics != TSR_NUMERICS_FAST)
        return TSR_OK;
    tsr_status st = open_backend(s, automatic ? "cuda" : name, TSR_NUMERICS_FAST, &e.err);
    if (st != TSR_OK && !automatic)
        return tsr_err_copy(err, st, &e.err);
    *done = st == TSR_OK && s->linalg;
    if (*done)
        return TSR_OK;
    if (st != TSR_OK) /* a backend reports what it lacks */
        tsr_logf(TSR_LOG_INFO, "linear algebra stays on the CPU: %s", e.text);
    close_backend(s);
    return TSR_OK;
}

/* In the default backend's place `numerics: fast` counts only where it runs the models, too: next to a
 * device it may lack the instructions. */
static tsr_status open_any(struct tsr_plugin_services *s, struct tsr_err *err)
{
    const struct tsr_plugin_run_on *on = tsr_plugin_registry_on(s->registry);
    bool done, fast = is_default(on->backend) && on->numerics == TSR_NUMERICS_FAST;
    TSR_TRY(open_device(s, &done, err));
    if (done)
        return TSR_OK;
    TSR_TRY(open_backend(s, TSR_PLUGIN_DEFAULT_BACKEND,
                         fast ? TSR_NUMERICS_FAST : TSR_NUMERICS_EXACT, err));
    if (!s->linalg)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "backend '%s' has no %s",
                        TSR_PLUGIN_DEFAULT_BACKEND, TSR_LINALG);
    return TSR_OK;
}

static const void *find(struct tsr_plugin_services *s, const char *id)
{
    if (id && strcmp(id, TSR_HERE) == 0)
        return s->here.ranks ? &s->here : NULL;
    if (!id || strcmp(id, TSR_LINALG) != 0)
        return NULL;
    pthread_mutex_lock(&s->lock);
    if (!s->tried) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        s->tried = true;
        if (open_any(s, &e.err) != TSR_OK)
            tsr_logf(TSR_LOG_WARN, "service %s: %s", id, e.text);
    }
    const void *table = s->linalg;
    pthread_mutex_unlock(&s->lock);
    return table;
}

void tsr_plugin_services_init(struct tsr_plugin_services *s, struct tsr_registry *r)
{
    *s = (struct tsr_plugin_services){ .find = find, .registry = r };
    (void)pthread_mutex_init(&s->lock, NULL);
}

void tsr_plugin_services_free(struct tsr_plugin_services *s)
{
    close_backend(s);
    (void)pthread_mutex_destroy(&s->lock);
}
