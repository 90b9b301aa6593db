#include "model/text_stamps.h"

#include "base/file.h"
#include "model/text_names.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* NULL after the last. */
static const char *name_of(uint64_t i)
{
    return i == 0 ? "config.json" : tsr_model_text_name(i - 1);
}

/* A file that cannot be examined counts as absent: reading it reports the reason. */
static void look(struct tsr_stamp *to, const char *path, const char *name)
{
    char file[PATH_MAX];
    bool folder = tsr_path_is_dir(path);
    int  n = snprintf(file, sizeof file, "%s%s%s", path, folder ? "/" : "", folder ? name : "");
    if (n < 0 || (size_t)n >= sizeof file)
        memset(to, 0, sizeof *to);
    else
        (void)tsr_stamp_take(to, file);
}

void tsr_model_text_stamps_take(struct tsr_model_text_stamps *s, const char *path)
{
    const char *name;
    for (uint64_t i = 0; i < TSR_TEXT_STAMPS && (name = name_of(i)); i++)
        look(&s->of[i], path, name);
}

tsr_status tsr_model_text_stamps_check(const struct tsr_model_text_stamps *s, const char *path,
                                       const char *name, struct tsr_err *err)
{
    struct tsr_stamp now;
    const char      *one;
    for (uint64_t i = 0; i < TSR_TEXT_STAMPS && (one = name_of(i)); i++) {
        if (strcmp(one, name) != 0)
            continue;
        look(&now, path, name);
        if (!tsr_stamp_same(&now, &s->of[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: %s changed while the model was in use; run again", path, name);
    }
    return TSR_OK;
}
