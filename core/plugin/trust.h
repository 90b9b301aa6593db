/* plugin/trust.h - checks which users could have placed code in a path. */
#ifndef TSR_PLUGIN_TRUST_H
#define TSR_PLUGIN_TRUST_H

#include "base/err.h"

/* Rejects (TSR_E_INPUT) a canonical path if others may change it or any folder above it.  That is:
 * world-writable (a sticky folder of root's, such as /tmp, is accepted for its content), or owned
 * by a user other than root, the caller, or the owner of this executable, who controls the running
 * code anyway.  Folders above the executable are exempt from the owner rule for the same reason. */
tsr_status tsr_plugin_path_trusted(const char *real, struct tsr_err *err);

/* Real path of this executable in fresh memory, or NULL. */
char *tsr_plugin_executable(void);

#endif
