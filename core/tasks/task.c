/* The tasks that are known: files of configs/tasks, which are part of the program, and files of the user. */
#include "tasks/task.h"

#include "base/file.h"
#include "base/user.h"
#include "tasks/task_text.h"

#include <stdlib.h>
#include <string.h>

#define BYTES  (UINT64_C(1) << 20)
#define FOLDER "configs/tasks/"
#define ENDING ".yaml"

bool tsr_tasks_is_file(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') ||
           (n > strlen(ENDING) && strcmp(name + n - strlen(ENDING), ENDING) == 0);
}

static bool is_called(const struct tsr_tasks_text *t, const char *name)
{
    const char *base = t->name + strlen(FOLDER);
    return strncmp(base, name, strlen(name)) == 0 && strcmp(base + strlen(name), ENDING) == 0;
}

bool tsr_tasks_is_built_in(const char *name)
{
    for (unsigned i = 0; i < TSR_TASKS_BUILT_IN; i++)
        if (is_called(&tsr_tasks_texts[i], name))
            return true;
    return false;
}

static tsr_status fail_unknown(const char *name, struct tsr_err *err)
{
    char   list[1024] = "";
    size_t at = 0;
    for (unsigned i = 0; i < TSR_TASKS_BUILT_IN && at < sizeof list; i++) {
        const char *base = tsr_tasks_texts[i].name + strlen(FOLDER);
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", i ? ", " : "",
                               (int)(strlen(base) - strlen(ENDING)), base);
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "task '%.100s' is not known; known: %s; a file FILE.yaml or plugin "
                    "install adds one",
                    name, list);
}

static tsr_status open_text(struct tsr_tasks_task **t, const char *name, const char *text,
                            uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    TSR_TRY(tsr_tasks_read(t, name, text, len, d, err));
    tsr_hash_bytes(text, len, (*t)->hash);
    return TSR_OK;
}

/* What the user installed as FOLDER/tasks/NAME.yaml. */
static tsr_status open_installed(struct tsr_tasks_task **t, const char *name, struct tsr_diag *d,
                                 struct tsr_err *err)
{
    char    *path, *text = NULL;
    uint64_t len;
    TSR_TRY(tsr_user_file(&path, TSR_USER_TASKS, name, err));
    if (!path)
        return fail_unknown(name, err);
    tsr_status st = tsr_file_slurp(path, BYTES, &text, &len, err);
    if (st == TSR_OK)
        st = open_text(t, path, text, len, d, err);
    free(text);
    free(path);
    return st;
}

tsr_status tsr_tasks_open(struct tsr_tasks_task **t, const char *name, struct tsr_diag *d,
                          struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    *t = NULL;
    if (!tsr_tasks_is_file(name)) {
        for (unsigned i = 0; i < TSR_TASKS_BUILT_IN; i++)
            if (is_called(&tsr_tasks_texts[i], name))
                return open_text(t, tsr_tasks_texts[i].name, tsr_tasks_texts[i].text,
                                 strlen(tsr_tasks_texts[i].text), d, err);
        return open_installed(t, name, d, err);
    }
    TSR_TRY(tsr_file_slurp(name, BYTES, &text, &len, err));
    tsr_status st = open_text(t, name, text, len, d, err);
    free(text);
    return st;
}
