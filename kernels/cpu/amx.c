/* amx.c - whether this machine has AMX. */
#include "amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HAS_TILE (1u << 24) /* leaf 7, subleaf 0, EDX */
#define HAS_INT8 (1u << 25)

#define REQUEST_PERMISSION 0x1023 /* arch_prctl(2) of Linux 5.16 */
#define TILE_DATA          18     /* the part of a thread's state that holds the tiles */

const struct tsr_cpu_amx_kernels *tsr_cpu_amx_pick(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & HAS_TILE) || !(d & HAS_INT8))
        return NULL;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? &tsr_cpu_amx : NULL;
}
