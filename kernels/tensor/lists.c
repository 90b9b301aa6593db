#include "lists.h"

#define U(x) ((unsigned long long)(x))

/* One list; `at` is its number. */
static tsr_status check(const uint32_t *list, uint64_t at, uint64_t words, uint64_t channels,
                        struct tsr_err *err)
{
    if (list[0] >= words)
        return tsr_fail(err, TSR_E_INVAL,
                        "COMPENSATE: list %llu has %u channels, and room for %llu", U(at), list[0],
                        U(words - 1));
    for (uint32_t i = 1; i <= list[0]; i++) {
        if (list[i] >= channels)
            return tsr_fail(err, TSR_E_INVAL,
                            "COMPENSATE: list %llu, place %u: channel %u is not below %llu", U(at),
                            i - 1, list[i], U(channels));
        if (i > 1 && list[i] <= list[i - 1])
            return tsr_fail(err, TSR_E_INVAL,
                            "COMPENSATE: list %llu, place %u: channel %u after %u; channels ascend",
                            U(at), i - 1, list[i], list[i - 1]);
    }
    return TSR_OK;
}

tsr_status tsr_tensor_lists(const uint32_t *p, uint64_t stride, uint64_t n, uint64_t words,
                            uint64_t channels, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++)
        st = check(p + i * stride, i, words, channels, err);
    return st;
}

tsr_status tsr_tensor_scales(const uint16_t *scales, uint64_t n, const char *name,
                             struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if ((scales[i] & 0x7c00u) == 0x7c00u)
            return tsr_fail(
                err, TSR_E_INVAL,
                "residual '%s': the scale of output channel %llu is %s; a finite number "
                "was expected",
                name, U(i),
                scales[i] & 0x3ffu    ? "nan"
                : scales[i] & 0x8000u ? "-inf"
                                      : "inf");
    return TSR_OK;
}
