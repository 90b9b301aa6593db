/* rotate/sites.h - what a rotation is of. */
#ifndef TSR_ROTATE_SITES_H
#define TSR_ROTATE_SITES_H

enum { TSR_ROTATE_RESIDUAL = 1, TSR_ROTATE_HEADS = 2, TSR_ROTATE_KEYS = 4, TSR_ROTATE_DOWN = 8 };

#endif
