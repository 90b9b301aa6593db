/* Names of the further chat templates of a model. */
#include "model/text_names.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST 256 /* templates, and bytes of a name */

static bool is_template(const char *name)
{
    static const char head[] = TSR_TEXT_TEMPLATES "/", tail[] = TSR_TEXT_JINJA;
    size_t            n = strlen(name), h = sizeof head - 1, t = sizeof tail - 1;
    return n > h + t && n < MOST && strncmp(name, head, h) == 0 &&
           strcmp(name + n - t, tail) == 0 && !strchr(name + h, '/') && name[h] != '.';
}

tsr_status tsr_model_text_list_add(struct tsr_model_text_list *l, const char *name,
                                   struct tsr_err *err)
{
    uint64_t at = l->n;
    if (!is_template(name))
        return TSR_OK;
    if (l->n == MOST)
        return tsr_fail(err, TSR_E_INPUT, "%s: more than %d chat templates", name, MOST);
    char **v = tsr_renew(l->v, l->n + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, (l->n + 1) * sizeof *v, "chat templates");
    l->v = v;
    char *copy = tsr_strdup(name);
    if (!copy)
        return tsr_fail_nomem(err, strlen(name), name);
    for (; at > 0 && strcmp(v[at - 1], copy) > 0; at--)
        v[at] = v[at - 1];
    v[at] = copy;
    l->n++;
    return TSR_OK;
}

tsr_status tsr_model_text_list_folder(struct tsr_model_text_list *l, const char *path,
                                      struct tsr_err *err)
{
    char *folder = tsr_path_join(path, TSR_TEXT_TEMPLATES);
    if (!folder)
        return tsr_fail_nomem(err, strlen(path), path);
    DIR       *d = opendir(folder);
    tsr_status st = TSR_OK;
    if (!d && errno != ENOENT && errno != ENOTDIR)
        st = tsr_fail_errno(err, errno, folder, "open");
    for (struct dirent *e; st == TSR_OK && d && (e = readdir(d));) {
        char name[sizeof e->d_name + sizeof TSR_TEXT_TEMPLATES + 1];
        (void)snprintf(name, sizeof name, TSR_TEXT_TEMPLATES "/%s", e->d_name);
        st = tsr_model_text_list_add(l, name, err);
    }
    if (d)
        (void)closedir(d);
    free(folder);
    return st;
}

void tsr_model_text_list_free(struct tsr_model_text_list *l)
{
    for (uint64_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (struct tsr_model_text_list){ 0 };
}
