#include "base/log.h"

#include "base/clock.h"
#include "tessera/plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static _Atomic int32_t log_level = TSR_LOG_WARN;
static _Atomic int     progress_quiet;
static pthread_mutex_t progress_lock = PTHREAD_MUTEX_INITIALIZER;

void tsr_log_set_level(int32_t level)
{
    atomic_store(&log_level, level);
}

int32_t tsr_log_level(void)
{
    return atomic_load(&log_level);
}

static _Thread_local void (*diverted)(void *ctx, int32_t level, const char *msg);
static _Thread_local void *divert_ctx;

void tsr_log_divert(void (*take)(void *ctx, int32_t level, const char *msg), void *ctx)
{
    diverted = take;
    divert_ctx = ctx;
}

void tsr_log_line(int32_t level, const char *msg)
{
    static const char *const name[] = { "debug", "info", "warning" };
    if (diverted) {
        diverted(divert_ctx, level, msg);
        return;
    }
    if (level < atomic_load(&log_level) || level < 0 || level > TSR_LOG_WARN)
        return;
    char line[2304];
    int  n = snprintf(line, sizeof line, "tessera: %s: %s\n", name[level], msg);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof line) {
        n = (int)sizeof line - 1;
        line[n - 1] = '\n';
    }
    /* one write, so that lines of different threads do not mix; a closed stderr is not an error */
    ssize_t w = write(STDERR_FILENO, line, (size_t)n);
    (void)w;
}

void tsr_logf(int32_t level, const char *fmt, ...)
{
    char    text[2048];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tsr_log_line(level, text);
}

void tsr_progress_quiet(int quiet)
{
    atomic_store(&progress_quiet, quiet);
}

void tsr_progress(const char *what, uint64_t done, uint64_t total)
{
    static uint64_t last_us;
    if (atomic_load(&progress_quiet))
        return;
    int      tty = isatty(STDERR_FILENO);
    uint64_t now = tsr_now_us();
    pthread_mutex_lock(&progress_lock);
    if (done >= total ? tty : now - last_us >= (tty ? 100000u : 5000000u)) {
        last_us = now;
        (void)fprintf(stderr, tty ? "\r\033[K%s %llu/%llu%s" : "%s %llu/%llu%s", what,
                      (unsigned long long)done, (unsigned long long)total,
                      tty ? (done >= total ? "\r\033[K" : "") : "\n");
        (void)fflush(stderr);
    }
    pthread_mutex_unlock(&progress_lock);
}
