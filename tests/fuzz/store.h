/* fuzz/store.h - an input as a file, for what is read by its name. */
#ifndef FUZZ_STORE_H
#define FUZZ_STORE_H

#include <stddef.h>
#include <stdint.h>

/* Puts the bytes into the file `name` of a folder of this process, which is gone at its end.  The path of the folder. */
const char *fuzz_store(const char *name, const uint8_t *data, size_t size);

#endif
