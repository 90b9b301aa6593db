#include "base/event.h"

#include "base/json.h"
#include "base/log.h"
#include "tessera/plugin.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic bool as_json;

void tsr_event_json(bool json)
{
    atomic_store(&as_json, json);
}

static void set_text(json_t **j, const char *key, const char *text)
{
    if (text)
        tsr_json_set(j, key, json_string(text));
}

static void set_number(json_t **j, const char *key, bool has, int64_t n)
{
    if (has)
        tsr_json_set(j, key, json_integer(n));
}

static json_t *json_of(const struct tsr_event *e, const char *message)
{
    json_t *j = json_pack("{s:s}", "kind", e->kind);
    set_number(&j, "rank", e->has_rank, e->rank);
    set_text(&j, "host", e->host);
    set_number(&j, "process", e->process != 0, e->process);
    set_text(&j, "doing", e->doing);
    set_number(&j, "code", e->has_code, e->code);
    set_number(&j, "signal", e->signal != 0, e->signal);
    set_text(&j, "cause", e->cause);
    set_text(&j, "then", e->then);
    set_text(&j, "message", message);
    return json_pack("{s:s, s:o}", "format", "tessera.event/1", "event", j);
}

/* Takes over j.  false: it is no text, as memory ran out or a string is not UTF-8. */
static bool put_line(json_t *j)
{
    char    *text;
    uint64_t n;
    bool     ok = tsr_json_text(j, JSON_COMPACT, &text, &n, NULL) == TSR_OK;
    json_decref(j);
    if (!ok)
        return false;
    text[n] = '\n'; /* in the place of the end; one write, as of a line of the log */
    ssize_t w = write(STDERR_FILENO, text, n + 1);
    (void)w;
    free(text);
    return true;
}

void tsr_event_say(const struct tsr_event *e, const char *fmt, ...)
{
    char    message[2048];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!atomic_load(&as_json) || tsr_log_level() > TSR_LOG_WARN || !put_line(json_of(e, message)))
        tsr_log_line(TSR_LOG_WARN, message);
}

void tsr_event_end(tsr_status st, const char *fmt, ...)
{
    char    message[2048];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!atomic_load(&as_json) ||
        !put_line(json_pack("{s:s, s:{s:s, s:i, s:s}}", "format", "tessera.error/1", "error",
                            "status", tsr_status_word(st), "exit_code", tsr_exit_code(st),
                            "message", message)))
        (void)fprintf(stderr, "tessera: error: %s\n", message);
    _exit(tsr_exit_code(st));
}
