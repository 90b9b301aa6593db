/* transform.h - matrices that spread outliers before MX rounds: the block search of mx. */
#ifndef TSR_PLUGINS_MX_TRANSFORM_H
#define TSR_PLUGINS_MX_TRANSFORM_H

#include <tessera/quantizer_block.h>

enum { MX_TRANSFORM_NONE, MX_TRANSFORM_HEADS = 1, MX_TRANSFORM_DOWN = 2, MX_TRANSFORM_BOTH = 3 };

/* Answers for all sites; transform: MX_TRANSFORM_*.  Returns TSR_OK; says in the log where a block takes none. */
tsr_status mx_transform_block(const struct tsr_host *host, int64_t transform,
                              const struct tsr_block         *block,
                              struct tsr_block_choice *const *choices);

#endif
