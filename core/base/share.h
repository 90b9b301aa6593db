/* base/share.h - folders that come with the program: the demo model, templates. */
#ifndef TSR_BASE_SHARE_H
#define TSR_BASE_SHARE_H

#include "base/err.h"

/* The first that exists: the folder ../share/tessera/INSTALLED relative to the program's folder, or
 * BUILT in the tree that the program was built from; fresh memory.  Neither: TSR_E_INPUT that
 * begins with `what` and names both places. */
tsr_status tsr_share_find(char **folder, const char *what, const char *installed, const char *built,
                          struct tsr_err *err);

#endif
