/* peers.c - libcuda.so.1 of the tests: devices that see each other's memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int cap, CUdevice d)
{
    ONE_AT_A_TIME;
    int n = 0;
    if (cuDeviceGetCount(&n) != CUDA_SUCCESS || d < 0 || d >= n || cap < 13)
        return CUDA_ERROR_INVALID_VALUE;
    (void)snprintf(text, (size_t)cap, "0000:%02X:00.0", d + 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *d, const char *text)
{
    ONE_AT_A_TIME;
    int  n = 0;
    long at = strncmp(text, "0000:", 5) == 0 ? strtol(text + 5, NULL, 16) - 1 : -1;
    if (cuDeviceGetCount(&n) != CUDA_SUCCESS || at < 0 || at >= n)
        return CUDA_ERROR_INVALID_DEVICE;
    *d = (CUdevice)at;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer)
{
    ONE_AT_A_TIME;
    *can = d != peer && standin_option("nopeers", 1) != 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    ONE_AT_A_TIME;
    CUresult r = standin_enter();
    int      can = 0;
    if (r != CUDA_SUCCESS)
        return r;
    const int other = standin_device_of(peer);
    if (flags || other < 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void)cuDeviceCanAccessPeer(&can, standin_device(), other);
    if (!can)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return standin_see(standin_device(), other) ? CUDA_SUCCESS
                                                : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
