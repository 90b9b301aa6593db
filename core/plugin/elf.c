#include "plugin/elf.h"

#include "base/mem.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PHDRS   512u
#define MAX_DYNAMIC 4096u
#define MAX_NAME    4096u
#define MAX_TABLE   (UINT64_C(64) << 20) /* symbols or names; far above any real plugin */

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#else
#error "the plugin ABI is defined for 64-bit little-endian machines"
#endif

struct elf {
    const struct tsr_file *file;
    struct tsr_err        *err;
    Elf64_Phdr            *ph;
    unsigned               n_ph;
    uint64_t               symtab, strtab, strsz, hash, gnu_hash; /* addresses; 0: absent */
    Elf64_Sym             *sym;
    uint64_t               n_sym;
    char                  *str;
    uint64_t              *needed; /* offset of the library names in str */
    uint64_t               n_needed;
};

static const char *machine_name(unsigned m)
{
    switch (m) {
    case EM_386:
        return "32-bit x86";
    case EM_X86_64:
        return "x86-64";
    case EM_ARM:
        return "32-bit ARM";
    case EM_AARCH64:
        return "aarch64";
    case EM_RISCV:
        return "RISC-V";
    case EM_PPC64:
        return "ppc64";
    default:
        return "another machine";
    }
}

static tsr_status broken(const struct elf *e, const char *what)
{
    return tsr_fail(e->err, TSR_E_INPUT,
                    "%s: %s; the file is truncated or damaged, build or copy it again",
                    e->file->path, what);
}

static tsr_status read_at(const struct elf *e, uint64_t offset, void *dst, uint64_t bytes,
                          const char *what)
{
    uint64_t end;
    if (!tsr_add(offset, bytes, &end) || end > e->file->size)
        return broken(e, what);
    return tsr_file_read(e->file, offset, dst, bytes, e->err);
}

/* Reads [addr, addr+bytes) of the loaded image from the file. */
static tsr_status read_image(const struct elf *e, uint64_t addr, void *dst, uint64_t bytes,
                             const char *what)
{
    uint64_t end;
    if (!tsr_add(addr, bytes, &end))
        return broken(e, what);
    for (unsigned i = 0; i < e->n_ph; i++) {
        const Elf64_Phdr *p = &e->ph[i];
        uint64_t          last;
        if (p->p_type == PT_LOAD && addr >= p->p_vaddr && tsr_add(p->p_vaddr, p->p_filesz, &last) &&
            end <= last) {
            uint64_t off;
            if (!tsr_add(p->p_offset, addr - p->p_vaddr, &off))
                return broken(e, what);
            return read_at(e, off, dst, bytes, what);
        }
    }
    return broken(e, what);
}

static tsr_status read_headers(struct elf *e, bool *is_plugin)
{
    unsigned char ident[EI_NIDENT];
    const char   *path = e->file->path;
    if (e->file->size < sizeof ident)
        return tsr_fail(e->err, TSR_E_INPUT,
                        "%s: is not an ELF shared object (%llu bytes); name a plugin's .so file",
                        path, (unsigned long long)e->file->size);
    TSR_TRY(tsr_file_read(e->file, 0, ident, sizeof ident, e->err));
    if (memcmp(ident, ELFMAG, SELFMAG) != 0)
        return tsr_fail(e->err, TSR_E_INPUT,
                        "%s: is not an ELF shared object; name a plugin's .so file", path);
    *is_plugin = true;
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
        return tsr_fail(e->err, TSR_E_INPUT,
                        "%s: is a %s-bit %s-endian ELF file, this host needs 64-bit little-endian; "
                        "rebuild the plugin for this machine",
                        path, ident[EI_CLASS] == ELFCLASS64 ? "64" : "32",
                        ident[EI_DATA] == ELFDATA2LSB ? "little" : "big");
    Elf64_Ehdr h;
    TSR_TRY(read_at(e, 0, &h, sizeof h, "ends inside the ELF header"));
    if (h.e_machine != HOST_MACHINE)
        return tsr_fail(e->err, TSR_E_INPUT,
                        "%s: is built for %s (ELF machine %u), this host is %s; rebuild the plugin "
                        "for this machine",
                        path, machine_name(h.e_machine), h.e_machine, machine_name(HOST_MACHINE));
    if (h.e_type != ET_DYN) {
        *is_plugin = false;
        return tsr_fail(
            e->err, TSR_E_INPUT,
            "%s: is an ELF file of type %u, not a shared object; name a plugin's .so file", path,
            h.e_type);
    }
    if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > MAX_PHDRS)
        return broken(e, "has no usable program headers");
    e->ph = tsr_new(h.e_phnum, sizeof *e->ph);
    if (!e->ph)
        return tsr_fail_nomem(e->err, h.e_phnum * sizeof *e->ph, path);
    e->n_ph = h.e_phnum;
    return read_at(e, h.e_phoff, e->ph, e->n_ph * sizeof *e->ph, "ends inside the program headers");
}

static tsr_status add_needed(struct elf *e, uint64_t at)
{
    uint64_t *v = tsr_renew(e->needed, e->n_needed + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(e->err, sizeof *v, e->file->path);
    e->needed = v;
    v[e->n_needed++] = at;
    return TSR_OK;
}

static tsr_status read_dynamic(struct elf *e)
{
    const Elf64_Phdr *d = NULL;
    for (unsigned i = 0; i < e->n_ph; i++) {
        uint64_t end;
        if (e->ph[i].p_type == PT_LOAD &&
            (!tsr_add(e->ph[i].p_offset, e->ph[i].p_filesz, &end) || end > e->file->size))
            return broken(e, "ends before its last segment");
        if (e->ph[i].p_type == PT_DYNAMIC)
            d = &e->ph[i];
    }
    if (!d)
        return broken(e, "has no dynamic section");
    uint64_t n = d->p_filesz / sizeof(Elf64_Dyn);
    if (n > MAX_DYNAMIC)
        n = MAX_DYNAMIC;
    for (uint64_t i = 0; i < n; i++) {
        Elf64_Dyn dyn;
        TSR_TRY(read_image(e, d->p_vaddr + i * sizeof dyn, &dyn, sizeof dyn,
                           "ends inside the dynamic section"));
        switch (dyn.d_tag) {
        case DT_NULL:
            i = n;
            break;
        case DT_NEEDED:
            TSR_TRY(add_needed(e, dyn.d_un.d_val));
            break;
        case DT_SYMTAB:
            e->symtab = dyn.d_un.d_ptr;
            break;
        case DT_STRTAB:
            e->strtab = dyn.d_un.d_ptr;
            break;
        case DT_STRSZ:
            e->strsz = dyn.d_un.d_val;
            break;
        case DT_HASH:
            e->hash = dyn.d_un.d_ptr;
            break;
        case DT_GNU_HASH:
            e->gnu_hash = dyn.d_un.d_ptr;
            break;
        default:
            break;
        }
    }
    return TSR_OK;
}

/* The number of dynamic symbols is stored nowhere but in the hash tables. */
static tsr_status count_symbols(struct elf *e)
{
    const char *what = "has a damaged symbol hash table";
    if (e->hash) {
        uint32_t h[2]; /* nbucket, nchain */
        TSR_TRY(read_image(e, e->hash, h, sizeof h, what));
        e->n_sym = h[1];
        return TSR_OK;
    }
    uint32_t h[4]; /* nbuckets, symoffset, bloom words, shift */
    TSR_TRY(read_image(e, e->gnu_hash, h, sizeof h, what));
    uint64_t at = e->gnu_hash + sizeof h + (uint64_t)h[2] * 8, last = 0;
    if (h[0] > MAX_TABLE / 4)
        return broken(e, what);
    for (uint64_t i = 0; i < h[0]; i++) {
        uint32_t b;
        TSR_TRY(read_image(e, at + i * 4, &b, sizeof b, what));
        if (b > last)
            last = b;
    }
    if (last < h[1]) { /* nothing hashed, so nothing exported */
        e->n_sym = 0;
        return TSR_OK;
    }
    for (uint64_t chain = at + (uint64_t)h[0] * 4;; last++) {
        uint32_t v;
        TSR_TRY(read_image(e, chain + (last - h[1]) * 4, &v, sizeof v, what));
        if (v & 1)
            break;
        if (last > MAX_TABLE / sizeof(Elf64_Sym))
            return broken(e, what);
    }
    e->n_sym = last + 1;
    return TSR_OK;
}

static tsr_status read_symbols(struct elf *e)
{
    if (!e->symtab || !e->strtab || !e->strsz || (!e->hash && !e->gnu_hash))
        return broken(e, "has no dynamic symbol table");
    TSR_TRY(count_symbols(e));
    uint64_t bytes = e->n_sym * sizeof(Elf64_Sym);
    if (bytes > MAX_TABLE || e->strsz > MAX_TABLE)
        return broken(e, "has an oversized dynamic symbol table");
    e->sym = tsr_new(e->n_sym, sizeof *e->sym);
    e->str = tsr_new(e->strsz + 1, 1);
    if (!e->sym || !e->str)
        return tsr_fail_nomem(e->err, bytes + e->strsz, e->file->path);
    TSR_TRY(read_image(e, e->symtab, e->sym, bytes, "ends inside the dynamic symbols"));
    return read_image(e, e->strtab, e->str, e->strsz, "ends inside the dynamic names");
}

static bool exported(const Elf64_Sym *s)
{
    unsigned bind = ELF64_ST_BIND(s->st_info), type = ELF64_ST_TYPE(s->st_info);
    unsigned vis = ELF64_ST_VISIBILITY(s->st_other);
    return s->st_shndx != SHN_UNDEF && s->st_shndx != SHN_ABS && s->st_value != 0 &&
           (bind == STB_GLOBAL || bind == STB_WEAK) && (type == STT_OBJECT || type == STT_NOTYPE) &&
           (vis == STV_DEFAULT || vis == STV_PROTECTED);
}

static tsr_status find_symbol(struct elf *e, const char *symbol, const char *prefix,
                              struct tsr_plugin_elf_plugin *out, bool *is_plugin)
{
    const char *other = NULL;
    for (uint64_t i = 1; i < e->n_sym; i++) {
        const Elf64_Sym *s = &e->sym[i];
        if (!exported(s) || s->st_name >= e->strsz)
            continue;
        const char *name = e->str + s->st_name;
        if (strcmp(name, symbol) == 0)
            return read_image(e, s->st_value, out->head, sizeof out->head,
                              "stores its plugin descriptor outside the file");
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            other = name;
    }
    *is_plugin = other != NULL;
    if (other)
        return tsr_fail(
            e->err, TSR_E_INPUT,
            "%s: exports %.40s, this host needs %s (ABI %d.%d); rebuild the plugin with "
            "this host's headers",
            e->file->path, other, symbol, TSR_ABI_MAJOR, TSR_ABI_MINOR);
    return tsr_fail(e->err, TSR_E_INPUT,
                    "%s: does not export %s, so it is not a plugin; name a plugin's .so file",
                    e->file->path, symbol);
}

/* Pointers, then the names. */
static tsr_status copy_needed(const struct elf *e, char ***names, struct tsr_err *err)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < e->n_needed; i++) {
        if (e->needed[i] >= e->strsz)
            return broken(e, "names a library outside its names");
        size_t n = strlen(e->str + e->needed[i]);
        if (n > MAX_NAME)
            return broken(e, "names a library by more than 4096 bytes");
        bytes += sizeof(char *) + n + 1;
    }
    char **v = tsr_new(1, bytes);
    if (!v)
        return tsr_fail_nomem(err, bytes, e->file->path);
    char *at = (char *)(v + e->n_needed);
    for (uint64_t i = 0; i < e->n_needed; i++) {
        v[i] = at;
        for (const char *from = e->str + e->needed[i]; *from; from++)
            *at++ = *from >= ' ' && *from <= '~' ? *from : '?';
        *at++ = '\0';
    }
    *names = v;
    return TSR_OK;
}

static tsr_status read_all(struct elf *e, bool *is_plugin)
{
    TSR_TRY(read_headers(e, is_plugin));
    TSR_TRY(read_dynamic(e));
    return read_symbols(e);
}

static void elf_free(struct elf *e)
{
    free(e->ph);
    free(e->sym);
    free(e->str);
    free(e->needed);
}

tsr_status tsr_plugin_elf_libraries(const struct tsr_file *f, char ***names, uint64_t *n,
                                    struct tsr_err *err)
{
    struct elf e = { .file = f, .err = err };
    bool       is_plugin;
    tsr_status st = read_all(&e, &is_plugin);
    if (st == TSR_OK)
        st = copy_needed(&e, names, err);
    *n = e.n_needed;
    elf_free(&e);
    return st;
}

tsr_status tsr_plugin_elf_probe(const struct tsr_file *f, const char *symbol, const char *prefix,
                                struct tsr_plugin_elf_plugin *out, bool *is_plugin,
                                struct tsr_err *err)
{
    struct elf e = { .file = f, .err = err };
    *is_plugin = false;
    tsr_status st = read_all(&e, is_plugin);
    if (st == TSR_OK)
        st = find_symbol(&e, symbol, prefix, out, is_plugin);
    elf_free(&e);
    return st;
}
