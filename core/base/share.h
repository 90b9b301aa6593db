/* base/share.h - folders that come with the program: the demo model, templates. */
#ifndef TSR_BASE_SHARE_H
#define TSR_BASE_SHARE_H

#include "base/err.h"

/* The folder ../share/tessera/INSTALLED beside the program's own, or BUILT in the tree that the
 * program was built from, whichever is found first; fresh memory.  Neither: TSR_E_INPUT that
 * begins with `what` and names both places. */
tsr_status tsr_share_find(char **folder, const char *what, const char *installed, const char *built,
                          struct tsr_err *err);

#endif
