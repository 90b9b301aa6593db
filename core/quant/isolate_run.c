/* One child: an instance of a quantizer at work in it, and what its end says. */
#include "quant/isolate_internal.h"

#include "base/log.h"

#include <string.h>

void isolated_at(struct isolated_head *head, enum isolated_call call, const char *name)
{
    (void)snprintf(head->name, sizeof head->name, "%s", name ? name : "");
    head->call = call;
}

struct run {
    struct tsr_quant_isolated *x;
    isolated_work             *work;
    struct isolated_head      *head;
    void                      *arg;
    bool                       threads;
};

static void silent(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}

static void child(void *arg)
{
    struct run                    *k = arg;
    const struct tsr_quantizer_v1 *t = k->x->found.iface;
    struct tsr_err                *err = &k->head->said.err;
    struct tsr_host                host = *k->x->host;
    struct tsr_quantizer           q = { .iface = t,
                                         .name = k->x->found.component->name,
                                         .found = &k->x->found,
                                         .options = k->x->options };
    /* the first instance has already reported the remarks about the options */
    host.log = k->x->met ? silent : tsr_process_log;
    tsr_log_divert(tsr_process_log, NULL);
    k->head->said = (struct tsr_errbuf)TSR_ERRBUF(k->head->said);
    if (k->threads)
        tsr_pool_revive(tsr_plugin_registry_pool(k->x->registry));
    isolated_at(k->head, ISOLATED_CREATE, NULL);
    tsr_status st = t->create(&host, k->x->options, &q.self, err);
    if (st == TSR_OK) {
        host.log = tsr_process_log;
        st = k->work(k->x, &q, k->head, k->arg, err);
        isolated_at(k->head, ISOLATED_DESTROY, NULL);
        t->destroy(q.self);
    }
    k->head->status = st;
}

/* Those of plugin.h, and those of the host's own functions, which the child ran. */
static bool known(tsr_status st)
{
    return (st <= TSR_OK && st >= TSR_E_CANCELLED) || (st <= TSR_E_INPUT && st >= TSR_E_PLUGIN);
}

static tsr_status judge(const struct tsr_quant_isolated *x, const struct isolated_head *h,
                        const struct tsr_process_outcome *o, struct tsr_err *err)
{
    static const char *const calls[ISOLATED_CALLS] = { "create()",  "plan()",
                                                       "prepare()", "quantize()",
                                                       "search()",  "a function that tells",
                                                       "destroy()" };
    char                     what[TSR_PROCESS_TEXT], name[sizeof h->name];
    uint32_t                 call = h->call < ISOLATED_CALLS ? h->call : ISOLATED_QUESTION;
    memcpy(name, h->name, sizeof name);
    name[sizeof name - 1] = '\0';
    if (o->end == TSR_PROCESS_STOPPED)
        return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    return tsr_fail(err, TSR_E_PLUGIN, "its %s%s%s%s %s; this is the fault of the plugin %s",
                    calls[call], *name ? " of '" : "", name, *name ? "'" : "",
                    tsr_process_text(&x->limits, o, what), x->found.info->path);
}

tsr_status isolated_run(struct tsr_quant_isolated *x, isolated_work *work,
                        struct isolated_head *head, void *arg, bool threads, bool *mine,
                        struct tsr_err *err)
{
    struct run                 k = { x, work, head, arg, threads };
    struct tsr_process_outcome o;
    *mine = true;
    TSR_TRY(tsr_process_run(&x->limits, child, &k, &o, err));
    if (o.end != TSR_PROCESS_DONE)
        return judge(x, head, &o, err);
    const char *text = head->said.text;
    head->said.text[sizeof head->said.text - 1] = '\0';
    if (!known(head->status))
        return tsr_fail(
            err, TSR_E_PLUGIN,
            "it answered %d, which is not a status%s%s; this is the fault of the plugin %s",
            (int)head->status, *text ? ", and said: " : "", text, x->found.info->path);
    *mine = false;
    if (head->status == TSR_OK)
        return TSR_OK;
    return tsr_err_receive(err, head->status, &head->said);
}
