/* tessera/f16.h for builds against the headers of 1.0: it needs nothing of a host, so it goes with any minor. */
#include "../../../../core/include/tessera/f16.h"
