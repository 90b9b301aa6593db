/* plugin/trust.h - who could have put code into a path. */
#ifndef TSR_PLUGIN_TRUST_H
#define TSR_PLUGIN_TRUST_H

#include "base/err.h"

/* Refuses (TSR_E_INPUT) a canonical path when it or any folder above it may be changed by
 * somebody else: world-writable (a sticky folder of root's, such as /tmp, is fine for what lies
 * in it), or owned by another user than root, the caller, or the owner of this executable, who
 * decides anyway what runs here.  Folders above the executable are exempt from the owner rule
 * for the same reason. */
tsr_status tsr_path_trusted(const char *real, struct tsr_err *err);

/* Real path of this executable in fresh memory, or NULL. */
char *tsr_executable(void);

#endif
