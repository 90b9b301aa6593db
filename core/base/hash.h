/* base/hash.h - content hashes: XXH3 with 128 bits, written "xxh3:<32 hex digits>".  They detect
 * equal content; they do not resist an attacker. */
#ifndef TSR_BASE_HASH_H
#define TSR_BASE_HASH_H

#include "base/err.h"

#define TSR_HASH_TEXT 38 /* "xxh3:" + 32 + NUL */

struct tsr_hasher;
tsr_status tsr_hasher_create(struct tsr_hasher **h, struct tsr_err *err);
void       tsr_hasher_update(struct tsr_hasher *h, const void *data, uint64_t bytes);
void       tsr_hasher_finish(struct tsr_hasher *h, char text[TSR_HASH_TEXT]); /* frees h */

void       tsr_hash_bytes(const void *data, uint64_t bytes, char text[TSR_HASH_TEXT]);
tsr_status tsr_hash_file(const char *path, char text[TSR_HASH_TEXT], struct tsr_err *err);

#endif
