/* cli/plugin/installed.h - plugins in the user's folder: `tessera plugin install`, `list` and `remove`.
 *
 * FOLDER/NAME.so is a plugin, and FOLDER/NAME.json says what was installed: "tessera.installed/1" with id, version,
 * license, components, hash, the file that it is a copy of, and how many rules it passed.  The registry searches the
 * folder last (base/user.h).
 */
#ifndef TSR_CLI_PLUGIN_INSTALLED_H
#define TSR_CLI_PLUGIN_INSTALLED_H

#include "cli/cli.h"

/* One installed plugin; NULL where its record is missing or does not say. */
struct tsr_cli_installed {
    char          *stem; /* NAME */
    struct json_t *record;
};
struct tsr_cli_installed_list {
    char                     *folder; /* canonical; NULL: there is none */
    struct tsr_cli_installed *v;      /* sorted by stem */
    uint64_t                  n;
};
/* Reads the names of the .so files and their records, and loads nothing.  A record that cannot be parsed is
 * TSR_E_INPUT.  Free after an error too. */
tsr_status tsr_cli_installed_read(struct tsr_cli_installed_list *l, struct tsr_err *err);
void       tsr_cli_installed_free(struct tsr_cli_installed_list *l);
/* FOLDER/STEM.END in fresh memory, or NULL. */
char *tsr_cli_installed_path(const char *folder, const char *stem, const char *end);
/* The file, then its record: a record alone is not listed. */
tsr_status tsr_cli_installed_delete(const char *folder, const char *stem, struct tsr_err *err);
/* For scandir(): names of .so files that are not hidden. */
struct dirent;
int tsr_cli_installed_so(const struct dirent *d);
/* "quantizer rtn", ... of one plugin of the registry; new reference, NULL: out of memory. */
struct json_t *tsr_cli_installed_components(struct tsr_registry          *r,
                                            const struct tsr_plugin_info *info);
/* A member of the record that is a string, or NULL. */
const char *tsr_cli_installed_text(const struct tsr_cli_installed *p, const char *key);

/* Copies a plugin's .so, or each .so of a folder, into the user's folder.  With `rules` it must keep the rules of
 * `plugin check` first.  An older file with the same id is replaced.  TSR_E_INPUT for a file that is no plugin, or
 * whose components another plugin has; TSR_E_CHECK for a broken rule.  [setup] */
tsr_status tsr_cli_plugin_install(struct tsr_cli *c, const char *path, bool rules,
                                  struct tsr_err *err);
/* Every plugin that a job finds, and where it comes from. */
tsr_status tsr_cli_plugin_list(struct tsr_cli *c, struct tsr_err *err);
/* By id, file name or the name of a component. */
tsr_status tsr_cli_plugin_remove(struct tsr_cli *c, const char *name, struct tsr_err *err);

#endif
