#include "comm/exchange.h"

#include "base/clock.h"
#include "plugin/registry.h"

#include <sched.h>
#include <string.h>

/* No room was made for too long: the message of the transfers under way names the late rank. */
static tsr_status be_late(struct tsr_comm_traffic *t, struct tsr_err *err)
{
    for (uint32_t i = 0; i < t->n_all; i++)
        for (uint32_t k = 0; k < t->all[i].n; k++) {
            void *handle = t->all[i].request[k].handle;
            if (!handle)
                continue;
            t->all[i].request[k].handle = NULL;
            tsr_status st = t->port->iface->wait(t->port->self, handle, 0, err);
            if (st != TSR_OK)
                return tsr_err_prefix(err, st, "%llu us have passed without room in the transport",
                                      (unsigned long long)t->deadline_us);
        }
    return TSR_OK; /* all came at the last moment */
}

/* No room in the transport: advance the transfers under way until there is. */
static tsr_status make_room(struct tsr_comm_traffic *t, uint64_t since, struct tsr_err *err)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n_all; i++) {
        struct tsr_comm_exchange *e = &t->all[i];
        for (uint32_t k = 0; k < e->n; k++) {
            int32_t done = 0;
            if (!e->request[k].handle)
                continue;
            any = true;
            tsr_status st = t->port->iface->test(t->port->self, e->request[k].handle, &done, err);
            if (st != TSR_OK || done)
                e->request[k].handle = NULL; /* released */
            if (st != TSR_OK)
                return st;
        }
    }
    if (!any)
        return tsr_fail(err, TSR_E_DEVICE, "the transport of rank %u takes no operation", t->rank);
    return tsr_now_us() - since > t->deadline_us ? be_late(t, err) : TSR_OK;
}

/* Whether a request is on its stream; *handle NULL: it is over. */
static tsr_status look(const struct tsr_comm_traffic *t, void **handle, bool *queued,
                       struct tsr_err *err)
{
    int32_t    is = 0, done = 0;
    tsr_status st = t->device->queued(t->port->self, *handle, &is, err);
    *queued = st == TSR_OK && is;
    if (*queued)
        return TSR_OK;
    /* reports the failure, or that the group was aborted */
    st = t->port->iface->test(t->port->self, *handle, &done, err);
    if (st != TSR_OK || done)
        *handle = NULL;
    *queued = done != 0;
    return st;
}

/* Waits until it is: communicators come up in any order, and the next operation must come after this one. */
static tsr_status put_on_stream(const struct tsr_comm_traffic *t, void **handle,
                                struct tsr_err *err)
{
    uint64_t since = tsr_now_us();
    bool     queued = false;
    for (;;) {
        TSR_TRY(look(t, handle, &queued, err));
        if (queued)
            return TSR_OK;
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        if (tsr_now_us() - since >= t->deadline_us)
            break;
        (void)sched_yield();
    }
    void *late = *handle; /* its message names the late rank */
    *handle = NULL;
    tsr_status st = t->port->iface->wait(t->port->self, late, 0, err);
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, st, "%llu us have passed", (unsigned long long)t->deadline_us);
}

/* One operation: kind 0 send, 1 receive (peer), 2 all-gather, 3 all-to-all. */
struct operation {
    int         kind;
    uint32_t    peer;
    const void *send;
    void       *recv;
    uint64_t    bytes;
};

static tsr_status start(struct tsr_comm_traffic *t, struct tsr_comm_exchange *e,
                        const struct operation *o, struct tsr_err *err)
{
    const struct tsr_transport_v1 *f = t->port->iface;
    void                          *self = t->port->self, *handle = NULL;
    uint64_t                       since = tsr_now_us();
    for (;;) {
        tsr_status st;
        if (o->kind == 0)
            st = f->send(self, t->stream, o->peer, o->send, o->bytes, &handle, err);
        else if (o->kind == 1)
            st = f->recv(self, t->stream, o->peer, o->recv, o->bytes, &handle, err);
        else if (o->kind == 2)
            st = f->all_gather(self, t->stream, o->send, o->recv, o->bytes, &handle, err);
        else
            st = f->all_to_all(self, t->stream, o->send, o->recv, o->bytes, &handle, err);
        if (st != TSR_OK)
            return st;
        if (handle)
            break;
        TSR_TRY(make_room(t, since, err));
    }
    struct tsr_comm_request *r = &e->request[e->n++];
    r->handle = handle;
    return t->stream ? put_on_stream(t, &r->handle, err) : TSR_OK;
}

static bool same_size(const struct tsr_comm_block *b, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (b[i].bytes != b[0].bytes)
            return false;
    return true;
}

tsr_status tsr_comm_exchange_start(struct tsr_comm_traffic *t, struct tsr_comm_exchange *e,
                                   bool to_all, const unsigned char *send,
                                   const struct tsr_comm_block *out, unsigned char *recv,
                                   const struct tsr_comm_block *in, struct tsr_err *err)
{
    e->n = 0;
    /* all ranks decide alike: out of an all-to-all and in of a gather list all slices */
    if (same_size(to_all ? in : out, t->ranks)) {
        struct operation o = { to_all ? 2 : 3, 0, send + out[0].at, recv + in[0].at, in[0].bytes };
        return in[0].bytes ? start(t, e, &o, err) : TSR_OK;
    }
    if (in[t->rank].bytes && !t->stream)
        memcpy(recv + in[t->rank].at, send + out[t->rank].at, in[t->rank].bytes);
    for (uint32_t i = 1; i < t->ranks; i++) {
        uint32_t         to = (t->rank + i) % t->ranks, from = (t->rank + t->ranks - i) % t->ranks;
        struct operation s = { 0, to, send + out[to].at, NULL, out[to].bytes };
        struct operation r = { 1, from, NULL, recv + in[from].at, in[from].bytes };
        /* operations of a stream run one after the other, a message only while both sides are in it: all
         * ranks take messages in the order of (i, sender), so that the first that is left can run */
        const struct operation *order[] = { &s, &r };
        bool                    later = t->stream && from < t->rank;
        for (uint32_t k = 0; k < 2; k++) {
            const struct operation *o = order[later ? 1 - k : k];
            if (o->bytes)
                TSR_TRY(start(t, e, o, err));
        }
    }
    return TSR_OK;
}

tsr_status tsr_comm_exchange_end(struct tsr_comm_traffic *t, struct tsr_comm_exchange *e,
                                 struct tsr_err *err)
{
    for (uint32_t i = 0; i < e->n; i++) {
        void *handle = e->request[i].handle;
        if (!handle)
            continue;
        e->request[i].handle = NULL;
        TSR_TRY(t->port->iface->wait(t->port->self, handle, t->deadline_us, err));
    }
    e->n = 0;
    return TSR_OK;
}
