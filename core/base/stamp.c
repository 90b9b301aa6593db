#include "base/stamp.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* All but the path. */
static tsr_status look(struct tsr_stamp *s, const char *path, struct tsr_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return tsr_fail_errno(err, errno, path, "stat");
        *s = (struct tsr_stamp){ .path = s->path };
        return TSR_OK;
    }
    *s = (struct tsr_stamp){ .path = s->path,
                             .there = true,
                             .dev = (uint64_t)st.st_dev,
                             .ino = (uint64_t)st.st_ino,
                             .size = (uint64_t)st.st_size,
                             .mtime_ns = ns(&st.st_mtim),
                             .ctime_ns = ns(&st.st_ctim) };
    return TSR_OK;
}

tsr_status tsr_stamps_take(struct tsr_stamps *s, const char *path, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].path, path) == 0)
            return look(&s->v[i], path, err);
    struct tsr_stamp *v = tsr_renew(s->v, s->n + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, (s->n + 1) * sizeof *v, "the stamps of files");
    s->v = v;
    v[s->n] = (struct tsr_stamp){ .path = tsr_strdup(path) };
    if (!v[s->n].path)
        return tsr_fail_nomem(err, strlen(path), "a path");
    return look(&v[s->n++], path, err);
}

tsr_status tsr_stamps_check(const struct tsr_stamps *s, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n; i++) {
        const struct tsr_stamp *was = &s->v[i];
        struct tsr_stamp        is = { .path = was->path };
        TSR_TRY(look(&is, was->path, err));
        if (was->there && !is.there)
            return tsr_fail(err, TSR_E_INPUT, "%s: is gone or was moved during the run", was->path);
        if (!was->there && is.there)
            return tsr_fail(err, TSR_E_INPUT, "%s: was not there when the run began", was->path);
        if (is.dev != was->dev || is.ino != was->ino)
            return tsr_fail(err, TSR_E_INPUT, "%s: was replaced during the run", was->path);
        if (is.size != was->size || is.mtime_ns != was->mtime_ns || is.ctime_ns != was->ctime_ns)
            return tsr_fail(err, TSR_E_INPUT, "%s: changed during the run", was->path);
    }
    return TSR_OK;
}

void tsr_stamps_free(struct tsr_stamps *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        free(s->v[i].path);
    free(s->v);
    *s = (struct tsr_stamps){ 0 };
}
