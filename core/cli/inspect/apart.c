#include "cli/inspect/apart.h"

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/prepacked/prepacked.h"
#include "plugin/try.h"

#include <string.h>

#define MOST          (UINT64_C(1) << 22) /* bytes of facts */
#define PROBE_TIME_US UINT64_C(300000000) /* the individual queries have shorter limits */

struct answer {
    tsr_status        status;
    struct tsr_errbuf said;
    uint64_t          bytes;
    char              facts[MOST];
};

struct question {
    struct tsr_cli     *c;
    tsr_inspect_collect collect;
    const char         *x;
    bool                ask, verify;
    struct answer      *a;
};

bool tsr_inspect_is_plugin_file(const char *x)
{
    size_t n = strlen(x);
    if (tsr_model_is_name(x) || tsr_path_is_dir(x))
        return false;
    if (n > 3 && strcmp(x + n - 3, ".so") == 0)
        return tsr_path_exists(x);
    return strchr(x, '/') && tsr_path_exists(x) && !tsr_gguf_is(x) && !tsr_prepacked_is(x);
}

static void child(void *arg)
{
    struct question *q = arg;
    struct answer   *a = q->a;
    struct tsr_err  *err = &a->said.err;
    json_t          *facts = json_object();
    a->said = (struct tsr_errbuf)TSR_ERRBUF(a->said);
    tsr_log_divert(tsr_process_log, NULL);
    a->status = facts ? q->collect(q->c, q->x, q->ask, q->verify, facts, err)
                      : tsr_fail_nomem(err, 0, q->x);
    char *text = NULL;
    if (a->status == TSR_OK)
        a->status = tsr_json_text(facts, JSON_COMPACT, &text, &a->bytes, err);
    if (a->status == TSR_OK && a->bytes > sizeof a->facts)
        a->status = tsr_fail(err, TSR_E_INPUT, "%s: its descriptor is longer than %llu bytes", q->x,
                             (unsigned long long)sizeof a->facts);
    if (a->status == TSR_OK)
        memcpy(a->facts, text, a->bytes);
    free(text);
}

static void pass_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    tsr_log_line(level, msg);
}

/* Treat a child's output as untrusted input. */
static tsr_status take(struct answer *a, const char *x, json_t *to, struct tsr_err *err)
{
    if (a->status != TSR_OK)
        return tsr_err_receive(err, a->status, &a->said);
    json_t *facts = NULL;
    if (a->bytes > sizeof a->facts)
        return tsr_fail(err, TSR_E_INPUT, "%s: its facts cannot be read", x);
    TSR_TRY(tsr_json_parse(&facts, x, a->facts, a->bytes, 64, err));
    bool ok = json_object_update(to, facts) == 0;
    json_decref(facts);
    return ok ? TSR_OK : tsr_fail_nomem(err, a->bytes, x);
}

tsr_status tsr_inspect_apart(struct tsr_cli *c, tsr_inspect_collect collect, const char *x,
                             bool ask, bool verify, json_t *to, struct tsr_err *err)
{
    const struct tsr_process   p = { .time_us = ask ? PROBE_TIME_US : TSR_PLUGIN_TRY_TIME_US,
                                     .memory_bytes = TSR_PLUGIN_TRY_MEMORY,
                                     .stopped = tsr_plugin_cancelled,
                                     .log = pass_log };
    struct question            q = { c, collect, x, ask, verify, NULL };
    struct tsr_process_outcome o;
    char                       what[TSR_PROCESS_TEXT];
    if (c->pool || c->registry) /* a child with half of the threads would wait for the others */
        return tsr_fail(err, TSR_E_BUG, "a plugin is looked at after threads were started");
    if (!(q.a = tsr_process_memory(sizeof *q.a)))
        return tsr_fail_nomem(err, sizeof *q.a, x);
    tsr_status st = tsr_process_run(&p, child, &q, &o, err);
    if (st == TSR_OK && o.end == TSR_PROCESS_STOPPED)
        st = tsr_fail(err, TSR_E_CANCELLED, "stopped");
    else if (st == TSR_OK && o.end != TSR_PROCESS_DONE)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: loading it %s; the file is damaged, or its constructors do what they "
                      "must not",
                      x, tsr_process_text(&p, &o, what));
    else if (st == TSR_OK)
        st = take(q.a, x, to, err);
    tsr_process_release(q.a, sizeof *q.a);
    return st;
}
