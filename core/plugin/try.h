/* plugin/try.h - loads a plugin's file in a child process first. */
#ifndef TSR_PLUGIN_TRY_H
#define TSR_PLUGIN_TRY_H

#include "base/err.h"

/* What a process that loads files may take. */
#define TSR_PLUGIN_TRY_TIME_US UINT64_C(20000000)
#define TSR_PLUGIN_TRY_MEMORY  (UINT64_C(4) << 30)

/* Loads the file by its canonical path, and checks its descriptor, in a child process that then exits.
 * TSR_OK means that the file did no harm there, whatever it is; TSR_E_INPUT reports how the process
 * ended: a damaged file may crash the loader, and its constructors are code.  [setup] */
tsr_status tsr_plugin_try(const char *real, struct tsr_err *err);

#endif
