#include "plugin/try.h"

#include "base/log.h"
#include "base/process.h"
#include "plugin/internal.h"

static void load(void *arg)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_plugin_loaded *l = NULL;
    bool                      is_plugin;
    tsr_log_set_level(TSR_LOG_WARN + 1); /* the message appears when it is loaded in this process */
    (void)tsr_plugin_load(&l, arg, &is_plugin, &e.err);
}

tsr_status tsr_plugin_try(const char *real, struct tsr_err *err)
{
    const struct tsr_process   p = { .time_us = TSR_PLUGIN_TRY_TIME_US,
                                     .memory_bytes = TSR_PLUGIN_TRY_MEMORY,
                                     .stopped = tsr_plugin_cancelled };
    struct tsr_process_outcome o;
    char                       what[TSR_PROCESS_TEXT];
    TSR_TRY(tsr_process_run(&p, load, (void *)(uintptr_t)real, &o, err));
    if (o.end == TSR_PROCESS_STOPPED)
        return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    if (o.end == TSR_PROCESS_DONE)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: loading it %s; the file is damaged, or its constructors do what they must "
                    "not",
                    real, tsr_process_text(&p, &o, what));
}
