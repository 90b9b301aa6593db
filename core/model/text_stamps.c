#include "model/text_stamps.h"

#include "base/file.h"
#include "model/texts.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* NULL after the last. */
static const char *name_of(uint64_t i)
{
    return i == 0 ? "config.json" : tsr_text_name(i - 1);
}

/* What cannot be looked at counts as absent: who reads it hears why. */
static void look(struct tsr_text_stamp *to, const char *path, const char *name)
{
    char        file[PATH_MAX];
    struct stat st;
    memset(to, 0, sizeof *to);
    bool folder = tsr_path_is_dir(path);
    int  n = snprintf(file, sizeof file, "%s%s%s", path, folder ? "/" : "", folder ? name : "");
    if (n < 0 || (size_t)n >= sizeof file || stat(file, &st) != 0)
        return;
    *to = (struct tsr_text_stamp){ .there = true,
                                   .size = (uint64_t)st.st_size,
                                   .mtime_ns = ns(&st.st_mtim),
                                   .ctime_ns = ns(&st.st_ctim),
                                   .ino = (uint64_t)st.st_ino,
                                   .dev = (uint64_t)st.st_dev };
}

void tsr_text_stamps_take(struct tsr_text_stamps *s, const char *path)
{
    const char *name;
    for (uint64_t i = 0; i < TSR_TEXT_STAMPS && (name = name_of(i)); i++)
        look(&s->of[i], path, name);
}

static bool same(const struct tsr_text_stamp *a, const struct tsr_text_stamp *b)
{
    return a->there == b->there && a->size == b->size && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns && a->ino == b->ino && a->dev == b->dev;
}

tsr_status tsr_text_stamps_check(const struct tsr_text_stamps *s, const char *path,
                                 const char *name, struct tsr_err *err)
{
    struct tsr_text_stamp now;
    const char           *one;
    for (uint64_t i = 0; i < TSR_TEXT_STAMPS && (one = name_of(i)); i++) {
        if (strcmp(one, name) != 0)
            continue;
        look(&now, path, name);
        if (!same(&now, &s->of[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: %s changed while the model was in use; run again", path, name);
    }
    return TSR_OK;
}
