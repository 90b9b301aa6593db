/* cli/plugin/installed_text.h - families and tasks in the user's folder: FOLDER/families/NAME.yaml and
 * FOLDER/tasks/NAME.yaml (base/user.h).
 *
 * NAME.json next to a file is its record: "tessera.installed/1" with kind, name, hash, the file that it is a copy of, and
 * how many rules it passed.  NAME is what the file calls itself.
 */
#ifndef TSR_CLI_PLUGIN_INSTALLED_TEXT_H
#define TSR_CLI_PLUGIN_INSTALLED_TEXT_H

#include "cli/cli.h"

struct tsr_cli_text {
    const char    *kind; /* "family" or "task" */
    char          *name, *path;
    struct json_t *record; /* NULL: missing */
};
struct tsr_cli_texts {
    struct tsr_cli_text *v; /* families, then tasks, each by name */
    uint64_t             n;
};
/* A record that cannot be parsed is TSR_E_INPUT.  Free after an error too. */
tsr_status tsr_cli_texts_read(struct tsr_cli_texts *l, struct tsr_err *err);
void       tsr_cli_texts_free(struct tsr_cli_texts *l);
/* As a row of `plugin list`; new reference, NULL: out of memory or the file cannot be read. */
struct json_t *tsr_cli_text_row(const struct tsr_cli_text *t);
/* Whether `plugin remove NAME` means it: NAME, NAME.yaml, or KIND/NAME. */
bool       tsr_cli_text_named(const struct tsr_cli_text *t, const char *name);
tsr_status tsr_cli_text_delete(const struct tsr_cli_text *t, struct tsr_err *err);
/* PATH with .json in place of .yaml; NULL: out of memory. */
char *tsr_cli_text_record_path(const char *path);

/* Copies a family or a task into the user's folder `folder`, and adds its record to *done.  With `rules` it must keep all
 * rules, else those that it can be read and has a name of its own.  An older file of that kind and name is replaced.
 * TSR_E_INPUT: it is neither, or its models are those of another installed family; TSR_E_CHECK for a broken rule.  Call
 * from a process without further threads.  [setup] */
tsr_status tsr_cli_text_install(struct tsr_cli *c, const char *file, const char *folder, bool rules,
                                struct json_t **done, struct tsr_err *err);

#endif
