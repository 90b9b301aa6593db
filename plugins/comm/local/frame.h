/* frame.h - the head of a message in a ring; the payload and its CRC-32C follow. */
#ifndef TSR_COMM_LOCAL_FRAME_H
#define TSR_COMM_LOCAL_FRAME_H

#include <stdint.h>

#define FRAME_MAGIC 0x46525354u /* "TSRF" */

enum { KIND_MESSAGE = 1, KIND_GATHER = 2, KIND_ALL_TO_ALL = 3 };

struct frame {
    uint32_t magic;
    uint16_t kind, from;
    uint64_t sequence, bytes, epoch;
    uint64_t start;   /* paced: when its first byte leaves, on the machine's clock */
    uint32_t to, crc; /* of the 44 bytes before */
};

#endif
