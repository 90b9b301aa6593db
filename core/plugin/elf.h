/* plugin/elf.h - what an ELF file says about its plugin descriptor, read from the file and
 * bounds-checked, so that a wrong file is refused before any of its code can run. */
#ifndef TSR_PLUGIN_ELF_H
#define TSR_PLUGIN_ELF_H

#include "base/file.h"

#define TSR_PLUGIN_HEAD 16

struct tsr_plugin_elf_plugin {
    unsigned char head[TSR_PLUGIN_HEAD]; /* the descriptor's first bytes as stored in the file */
};

/* Finds the exported data symbol `symbol` through the dynamic section, as the loader does, and
 * reads the descriptor's first 16 bytes; relocations do not reach them, since they hold plain
 * numbers.  prefix ("tsr_plugin_v"): an export of this shape but another number is named in the
 * sentence.  *is_plugin false (with TSR_E_INPUT and a sentence): no ELF shared object, or one
 * without such an export; true with TSR_E_INPUT: it means to be a plugin, but is broken or not
 * for this machine. */
tsr_status tsr_plugin_elf_probe(const struct tsr_file *f, const char *symbol, const char *prefix,
                                struct tsr_plugin_elf_plugin *out, bool *is_plugin,
                                struct tsr_err *err);

/* The libraries that the file asks the loader for, in its order, as printable ASCII ('?' for the
 * rest).  One block, freed by the caller with free(). */
tsr_status tsr_plugin_elf_libraries(const struct tsr_file *f, char ***names, uint64_t *n,
                                    struct tsr_err *err);

#endif
