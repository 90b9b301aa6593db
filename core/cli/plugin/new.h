/* cli/plugin/new.h - a folder for a new plugin, from the templates.
 *
 * The templates of a kind are the files of templates/common/LANG and templates/KIND/LANG, LANG
 * being c or cxx; with an optional table those of templates/KIND/TABLE/LANG; of a family or a task
 * those of templates/KIND/yaml.  A file called NAME.x gets the plugin's name, and in every file
 * @NAME@, @ID@ and @LICENSE@ are replaced.
 */
#ifndef TSR_CLI_PLUGIN_NEW_H
#define TSR_CLI_PLUGIN_NEW_H

#include "base/err.h"

#include <stdbool.h>

struct tsr_cli_new_plugin {
    const char *kind;    /* "quantizer" */
    const char *name;    /* "mine" */
    const char *folder;  /* to be made; NULL or "": name */
    const char *id;      /* reverse DNS; NULL or "": org.example.NAME */
    const char *license; /* SPDX */
    const char *table;   /* an optional table of the kind, "stream"; NULL or "": none */
    bool        cxx;
};

struct tsr_cli_new_files {
    char  *folder;
    char **names; /* file names in the folder, sorted */
    size_t n;
};

/* Checks the options, then writes the whole folder or nothing. An existing folder or file of that name is
 * TSR_E_INPUT and stays unchanged. [setup] */
tsr_status tsr_plugin_new(const struct tsr_cli_new_plugin *p, struct tsr_cli_new_files *made,
                          struct tsr_err *err);
void       tsr_cli_new_files_free(struct tsr_cli_new_files *f);

#endif
