/* Facts of all ranks, compared before any of them works: version, plugins, plan, model. */
#include "runtime/peers_internal.h"

#include "base/clock.h"

#include <string.h>

void tsr_runtime_peers_tell(struct tsr_runtime_peers *m, const struct tsr_runtime_peer_facts *facts)
{
    (void)pthread_mutex_lock(&m->lock);
    m->facts = *facts;
    m->told = true;
    m->state++;
    (void)pthread_mutex_unlock(&m->lock);
}

/* Compares rank r's facts with those of rank 0. */
static tsr_status compare(const struct tsr_runtime_peers *m, uint32_t r,
                          const struct tsr_runtime_peer_facts *f,
                          const struct tsr_runtime_peer_facts *zero, struct tsr_err *err)
{
    const struct {
        const char *what, *mine, *his, *hint;
    } all[] = {
        { "version of Tessera", f->version, zero->version, "install the same everywhere" },
        { "set of plugins", f->plugins, zero->plugins, "install the same files everywhere" },
        { "plan", f->plan, zero->plan, "copy rank 0's, with the calibrations that it names" },
        { "model", f->model, zero->model, "copy rank 0's, or name its place there by model_at" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].mine, all[i].his) != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "rank %u on %s has another %s than rank 0 on %s (%s, %s); %s", r,
                            m->host[r], all[i].what, m->host[0], all[i].mine, all[i].his,
                            all[i].hint);
    return TSR_OK;
}

/* Of a rank whose facts are missing: it is heard, but reads neither job nor model.  [lock] */
static void judge(struct tsr_runtime_peers *m, uint32_t r)
{
    uint64_t now = tsr_now_us();
    char     text[160];
    if (m->failed || now < m->peer[r].active_us || now - m->peer[r].active_us < m->stall_us)
        return;
    (void)
        snprintf(text, sizeof text,
                 "its process %d reads the job and the model, and has made no progress for %.1f s",
                 (int)m->name[r].pid, (double)(now - m->peer[r].active_us) / 1e6);
    tsr_runtime_peers_lost(m, r, text);
}

tsr_status tsr_runtime_peers_meet(struct tsr_runtime_peers *m, struct tsr_runtime_peer_facts *zero,
                                  struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    uint32_t   missing = 1;
    (void)pthread_mutex_lock(&m->lock);
    while (missing && st == TSR_OK) {
        missing = 0;
        for (uint32_t r = 0; r < m->ranks; r++)
            if (tsr_peers_speak(m, r) && !m->peer[r].has_facts) {
                missing++;
                judge(m, r);
            }
        st = tsr_runtime_peers_failed(m, err);
        if (st == TSR_OK && (tsr_plugin_cancelled() || m->over))
            st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        if (missing && st == TSR_OK)
            tsr_runtime_peers_wait_news(m);
    }
    *zero = m->rank == 0 ? m->facts : m->peer[0].in.facts;
    if (st == TSR_OK &&
        zero->stall_us > m->stall_us) /* beats share a link with what it was set for */
        m->stall_us = zero->stall_us;
    if (st == TSR_OK && m->rank > 0)
        st = compare(m, m->rank, &m->facts, zero, err);
    for (uint32_t r = 1; m->rank == 0 && st == TSR_OK && r < m->ranks; r++)
        st = compare(m, r, &m->peer[r].in.facts, zero, err);
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}
