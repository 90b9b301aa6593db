#include "comm/world.h"

#include "base/held.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static tsr_status open_spec(struct tsr_plugin_spec *s, struct tsr_registry *r, const char *text,
                            struct tsr_err *err)
{
    tsr_status st =
        tsr_plugin_spec_open(s, r, TSR_KIND_TRANSPORT, text && *text ? text : "local", err);
    if (st != TSR_OK) {
        tsr_plugin_spec_close(s);
        return tsr_err_prefix(err, st, "transport '%s'", text && *text ? text : "local");
    }
    return st;
}

/* The transport under another one; NULL: none. */
static const char *under(const struct tsr_plugin_spec *s)
{
    const struct tsr_transport_v1 *t = s->found.iface;
    const char                    *text = t->via ? t->via(s->options) : NULL;
    return text && *text ? text : NULL;
}

#define ALIGN UINT64_C(64) /* of the part of the world that is the transport's below */

/* Bytes that a group of a transport shares, its own first. */
static tsr_status bytes_of(struct tsr_registry *r, const char *text, uint32_t ranks, bool below,
                           uint64_t *own, uint64_t *all, struct tsr_err *err)
{
    struct tsr_plugin_spec s;
    uint64_t               more = 0, none;
    TSR_TRY(open_spec(&s, r, text, err));
    const struct tsr_transport_v1 *t = s.found.iface;
    const char                    *via = under(&s);
    tsr_status                     st = TSR_OK;
    *own = t->world_bytes(s.options, ranks);
    if (via && below)
        st = tsr_fail(err, TSR_E_INPUT, "transport '%.80s' lies under another one, and asks for %s",
                      text, via);
    else if (via)
        st = bytes_of(r, via, ranks, true, &none, &more, err);
    *all = *own;
    if (st == TSR_OK && more > 0 &&
        (!tsr_add(*own, ALIGN - 1, own) || !tsr_add(*own &= ~(ALIGN - 1), more, all)))
        st = tsr_fail(err, TSR_E_INVAL, "transport '%.80s': its world is too large", text);
    tsr_plugin_spec_close(&s);
    return st;
}

static tsr_status map(struct tsr_comm_world *w, struct tsr_err *err)
{
    void *p = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    if (p == MAP_FAILED)
        return tsr_fail_errno(err, errno, "memory shared by ranks", "map it");
    w->shared = p;
    return TSR_OK;
}

tsr_status tsr_comm_world_create(struct tsr_comm_world *w, struct tsr_registry *r,
                                 const char *transport, uint32_t ranks, struct tsr_err *err)
{
    uint64_t own;
    *w = (struct tsr_comm_world){ .fd = -1 };
    TSR_TRY(bytes_of(r, transport, ranks, false, &own, &w->bytes, err));
    if (w->bytes == 0)
        return TSR_OK;
    tsr_status st = TSR_OK;
    w->fd = memfd_create("tessera-ranks", MFD_CLOEXEC);
    /* reserved now: a machine without room fails here with an error, not later with a signal */
    int e = w->fd < 0              ? errno
            : w->bytes > INT64_MAX ? EFBIG
                                   : posix_fallocate(w->fd, 0, (off_t)w->bytes);
    if (w->fd >= 0)
        tsr_held_add(w->fd, "memory shared by ranks");
    st = e ? tsr_fail_errno(err, e, "memory shared by ranks", "make it") : map(w, err);
    if (st != TSR_OK)
        tsr_comm_world_close(w);
    return st;
}

void tsr_comm_world_close(struct tsr_comm_world *w)
{
    if (w->shared)
        (void)munmap(w->shared, w->bytes);
    if (w->fd >= 0)
        (void)tsr_held_close(w->fd);
    *w = (struct tsr_comm_world){ .fd = -1 };
}

/* ---- ports ------------------------------------------------------------- */

/* Joins the transport that another transport requires, in the part of the world after the latter's own. */
static tsr_status open_under(struct tsr_comm_port *p, struct tsr_registry *r,
                             const struct tsr_comm_place *place, uint64_t own, struct tsr_err *err)
{
    struct tsr_comm_place below = *place;
    below.transport = place->under ? place->under : under(&p->spec);
    below.under = NULL;
    below.shared = own < place->shared_bytes ? (unsigned char *)place->shared + own : NULL;
    below.shared_bytes = own < place->shared_bytes ? place->shared_bytes - own : 0;
    p->under = tsr_new(1, sizeof *p->under);
    if (!p->under)
        return tsr_fail_nomem(err, sizeof *p->under, "a transport under another one");
    return tsr_comm_port_open(p->under, r, &below, err);
}

tsr_status tsr_comm_port_open(struct tsr_comm_port *p, struct tsr_registry *r,
                              const struct tsr_comm_place *place, struct tsr_err *err)
{
    uint64_t own, all;
    *p = (struct tsr_comm_port){ 0 };
    TSR_TRY(open_spec(&p->spec, r, place->transport, err));
    const struct tsr_transport_v1 *t = p->spec.found.iface;
    struct tsr_transport_world     w = { .struct_size = sizeof w,
                                         .rank = place->rank,
                                         .ranks = place->ranks,
                                         .shared = place->shared,
                                         .shared_bytes = place->shared_bytes,
                                         .epoch = place->epoch };

    tsr_status st = TSR_OK;
    if (place->under && !under(&p->spec))
        st = tsr_fail(
            err, TSR_E_INPUT,
            "transport '%.80s' joins the ranks of one machine here; under mpirun it needs one by "
            "which they find each other, as nccl has it with ids=mpi",
            place->transport);
    if (st == TSR_OK && under(&p->spec)) {
        st = bytes_of(r, place->transport, place->ranks, false, &own, &all, err);
        if (st == TSR_OK)
            st = open_under(p, r, place, own, err);
        if (st == TSR_OK) {
            w.via = p->under->iface;
            w.via_self = p->under->self;
        }
    }
    if (st == TSR_OK)
        st = t->create(p->spec.found.host, p->spec.options, &w, &p->self, err);
    if (st == TSR_OK) {
        p->iface = t;
        p->counts = t->extension ? t->extension(p->self, TSR_TRANSPORT_COUNTS) : NULL;
        return st;
    }
    tsr_comm_port_close(p);
    return st == TSR_E_CONFIG ? TSR_E_INPUT : st;
}

void tsr_comm_port_close(struct tsr_comm_port *p)
{
    if (p->iface)
        p->iface->destroy(p->self);
    if (p->under)
        tsr_comm_port_close(p->under);
    free(p->under);
    tsr_plugin_spec_close(&p->spec);
    *p = (struct tsr_comm_port){ 0 };
}
