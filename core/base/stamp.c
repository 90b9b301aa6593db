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

int tsr_stamp_take(struct tsr_stamp *s, const char *path)
{
    struct stat st;
    memset(s, 0, sizeof *s);
    if (stat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
    *s = (struct tsr_stamp){ .there = true,
                             .dev = (uint64_t)st.st_dev,
                             .ino = (uint64_t)st.st_ino,
                             .size = (uint64_t)st.st_size,
                             .mtime_ns = ns(&st.st_mtim),
                             .ctime_ns = ns(&st.st_ctim) };
    return 0;
}

bool tsr_stamp_same(const struct tsr_stamp *a, const struct tsr_stamp *b)
{
    return a->there == b->there && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

static tsr_status take(struct tsr_stamp *s, const char *path, struct tsr_err *err)
{
    int e = tsr_stamp_take(s, path);
    return e ? tsr_fail_errno(err, e, path, "stat") : TSR_OK;
}

tsr_status tsr_stamps_take(struct tsr_stamps *s, const char *path, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].path, path) == 0)
            return take(&s->v[i].stamp, path, err);
    struct tsr_stamped_path *v = tsr_renew(s->v, s->n + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, (s->n + 1) * sizeof *v, "the stamps of files");
    s->v = v;
    v[s->n] = (struct tsr_stamped_path){ .path = tsr_strdup(path) };
    if (!v[s->n].path)
        return tsr_fail_nomem(err, strlen(path), "a path");
    return take(&v[s->n++].stamp, path, err);
}

static tsr_status check(const struct tsr_stamped_path *one, struct tsr_err *err)
{
    const char             *path = one->path;
    const struct tsr_stamp *was = &one->stamp;
    struct tsr_stamp        is;
    TSR_TRY(take(&is, path, err));
    if (was->there && !is.there)
        return tsr_fail(err, TSR_E_INPUT, "%s: is gone or was moved during the run", path);
    if (!was->there && is.there)
        return tsr_fail(err, TSR_E_INPUT, "%s: was not there when the run began", path);
    if (is.dev != was->dev || is.ino != was->ino)
        return tsr_fail(err, TSR_E_INPUT, "%s: was replaced during the run", path);
    if (!tsr_stamp_same(was, &is))
        return tsr_fail(err, TSR_E_INPUT, "%s: changed during the run", path);
    return TSR_OK;
}

tsr_status tsr_stamps_check(const struct tsr_stamps *s, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n; i++)
        TSR_TRY(check(&s->v[i], err));
    return TSR_OK;
}

bool tsr_stamps_there(const struct tsr_stamps *s, const char *path)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].path, path) == 0)
            return s->v[i].stamp.there;
    return false;
}

tsr_status tsr_stamps_check_file(const struct tsr_stamps *s, const char *path, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].path, path) == 0)
            return check(&s->v[i], err);
    return TSR_OK;
}

void tsr_stamps_free(struct tsr_stamps *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        free(s->v[i].path);
    free(s->v);
    *s = (struct tsr_stamps){ 0 };
}
