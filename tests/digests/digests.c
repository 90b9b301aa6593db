/* digests.c - digests [SET]: what each kernel of one instruction set gives for random inputs, a name and a digest a line.
 * All sets of all processors print the same lines (docs/decisions/numerics.md).  SET: as TSR_ISA; without it, what this
 * processor gets.  The last line, on stderr, names the set.  Exit code 2: this processor has not that set. */
#include "digests.h"

#include "../unit/cpu_fixture.h"

#include <stdio.h>

static struct {
    char     name[120];
    uint64_t hash, cases;
} now;

static uint64_t mixed(uint64_t hash, uint64_t byte)
{
    return (hash ^ byte) * UINT64_C(0x100000001b3); /* FNV-1a */
}

void digest_begin(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(now.name, sizeof now.name, format, args);
    va_end(args);
    now.hash = UINT64_C(0xcbf29ce484222325);
    now.cases++;
}

uint64_t digest_seed(void)
{
    return UINT64_C(88172645463325252) + now.cases * UINT64_C(0x9e3779b97f4a7c15);
}

void digest_bytes(const void *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        now.hash = mixed(now.hash, ((const uint8_t *)p)[i]);
}

void digest_floats(const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t quiet = 0x7fc00000u;
        uint32_t       bits;
        memcpy(&bits, x + i, 4);
        if ((bits & 0x7fffffffu) > 0x7f800000u)
            bits = quiet;
        for (uint32_t b = 0; b < 32; b += 8)
            now.hash = mixed(now.hash, bits >> b & 255u);
    }
}

void digest_end(void)
{
    printf("%s\t%016llx\n", now.name, (unsigned long long)now.hash);
}

int main(int argc, char **argv)
{
    struct tsr_cpu *c = cpu_new(argc > 1 ? argv[1] : "");
    if (!c) {
        fprintf(stderr, "digests: this processor has no set '%s'\n", argc > 1 ? argv[1] : "");
        return 2;
    }
    linear_cases(c);
    row_cases(c);
    cache_cases(c);
    algebra_cases(c);
    fprintf(stderr, "set %s\n", c->k->name);
    tsr_cpu_destroy(c);
    if (host_bytes != 0)
        fail_msg("digests: %lld bytes are not given back", (long long)host_bytes);
    return fflush(stdout) == 0 ? 0 : 1;
}
