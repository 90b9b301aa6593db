/* plugin/user.h - the folder of the plugins that the user installed. */
#ifndef TSR_PLUGIN_USER_H
#define TSR_PLUGIN_USER_H

#include "base/err.h"

/* $XDG_DATA_HOME/tessera/plugins, or $HOME/.local/share/tessera/plugins, in fresh memory; the folder need not exist.
 * *path NULL: neither variable is an absolute path, and the user has no such folder.  [setup] */
tsr_status tsr_plugin_user_folder(char **path, struct tsr_err *err);

#endif
