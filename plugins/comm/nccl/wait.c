/* Waiting for an operation, and giving it up. */
#include "nccl.h"

#include <sched.h>
#include <time.h>

#define SPIN_ROUNDS 2000u
#define NAP_NS      50000

void nc_withdraw(struct nccl *s, struct nc_request *r, tsr_status st, const char *why)
{
    struct nc_link *l = r->link;
    char            name[64];
    if (l && r->stage != NC_WAITS &&
        (l->group || l->from != l->to)) /* half of it has happened, there or here */
        nc_link_break(s, l, TSR_E_DEVICE,
                      "nccl: rank %u gave up an earlier operation with %s, and its communicator",
                      s->rank, nc_link_name(s, l, name));
    if (r->link) {
        struct nc_request **link = &l->first, *before = NULL;
        while (*link != r) {
            before = *link;
            link = &before->next;
        }
        *link = r->next;
        if (l->last == r)
            l->last = before;
        r->link = NULL;
    }
    r->stage = NC_ENDED;
    r->status = st;
    (void)snprintf(r->why, sizeof r->why, "%s", why);
}

static bool ended(const struct nc_request *r)
{
    return r->stage == NC_ENDED && !r->link;
}

/* One round. *over: the request has ended, with the returned status, and is freed; its communicator no
 * longer uses its memory. */
static tsr_status look(struct nccl *s, struct nc_request *r, bool *over, struct tsr_err *err)
{
    NC_TEXT(e);
    tsr_status st = TSR_OK;
    nc_lock();
    nc_move_all();
    bool inside = nc_enter(s);
    if (!ended(r) || r->status != TSR_OK)
        st = nc_cancelled(s, &e.err);
    if (st != TSR_OK)
        nc_withdraw(s, r, st, e.text);
    st = TSR_OK;
    *over = ended(r) && (!r->broken || nc_link_is_settled(s, r->broken));
    if (*over && r->status != TSR_OK)
        st = tsr_fail(err, r->status, "%s", r->why);
    if (*over)
        nc_request_drop(s, r);
    if (inside)
        nc_leave(s);
    nc_unlock();
    return st;
}

tsr_status nc_test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    bool       over;
    tsr_status st = look(self, request, &over, err);
    *done = over;
    return st;
}

/* The late ranks: of a collective, those that have started fewer, if known. */
static void late_ranks(const struct nccl *s, const struct nc_link *l, char *who, size_t cap)
{
    size_t n = 0;
    bool   some = false;
    for (uint32_t r = 0; r < s->ranks && l->group; r++)
        some = some || (r != s->rank && nc_meet_counted(s, r) < s->collectives);
    for (uint32_t r = 0; r < s->ranks && n + 24 < cap; r++) {
        bool late = l->group ? r != s->rank && (!some || nc_meet_counted(s, r) < s->collectives)
                             : r == (l->from == s->rank ? l->to : l->from);
        if (late)
            n += (size_t)snprintf(who + n, cap - n, "%s%u%s", n ? ", " : "", r,
                                  r != s->rank && nc_meet_left(s, r) ? " (has left)" : "");
    }
}

static void give_up(struct nccl *s, struct nc_request *r, tsr_status st, uint64_t deadline_us)
{
    char who[160] = "", why[sizeof r->why] = "nccl: stopped by the user";
    nc_lock();
    bool inside = nc_enter(s);
    if (!ended(r)) { /* meanwhile */
        if (r->link)
            late_ranks(s, r->link, who, sizeof who);
        if (st == TSR_E_DEVICE)
            (void)snprintf(why, sizeof why,
                           "nccl: rank %u waited %llu us for rank %s; it is late or has died%s",
                           s->rank, U(deadline_us), who,
                           r->stage != NC_WAITS ? ", and the communicator was aborted" : "");
        nc_withdraw(s, r, st, why);
    }
    if (inside)
        nc_leave(s);
    nc_unlock();
}

tsr_status nc_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    struct nccl *s = self;
    uint64_t     start = nc_now_us();
    bool         given_up = false; /* the remaining work has a separate limit */
    for (unsigned round = 0;; round++) {
        bool       over;
        tsr_status st = look(s, request, &over, err);
        if (over)
            return st;
        if (!given_up && (nc_now_us() - start >= deadline_us || s->host->cancelled(s->host->ctx))) {
            given_up = true;
            give_up(s, request, nc_now_us() - start >= deadline_us ? TSR_E_DEVICE : TSR_E_CANCELLED,
                    deadline_us);
            continue;
        }
        if (round < SPIN_ROUNDS)
            (void)sched_yield();
        else
            (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
}
