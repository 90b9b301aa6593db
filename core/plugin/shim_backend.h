/* plugin/shim_backend.h - the host's wrapper of a backend instance. */
#ifndef TSR_PLUGIN_SHIM_BACKEND_H
#define TSR_PLUGIN_SHIM_BACKEND_H

#include "plugin/shim.h"
#include "tessera/backend_candidates.h"
#include "tessera/backend_codec.h"
#include "tessera/backend_layout.h"
#include "tessera/draft/compensate.h"
#include "tessera/draft/launch.h"
#include "tessera/draft/linears.h"
#include "tessera/draft/peaks.h"
#include "tessera/draft/probe.h"
#include "tessera/draft/sizes.h"
#include "tessera/draft/window.h"
#include "tessera/linalg.h"

struct tsr_plugin_shim_device {
    struct tsr_plugin_shim base;
    struct {
        const void                 *raw;
        struct tsr_backend_codec_v1 table;
    } codec;
    struct {
        const void                  *raw;
        struct tsr_backend_layout_v1 table;
    } layout;
    struct {
        const void                      *raw;
        struct tsr_backend_compensate_v1 table;
    } compensate;
    struct {
        const void         *raw;
        struct tsr_probe_v1 table;
    } probe;
    struct {
        const void         *raw;
        struct tsr_sizes_v1 table;
    } sizes;
    struct {
        const void                   *raw;
        struct tsr_backend_linears_v1 table;
    } linears;
    struct {
        const void                      *raw;
        struct tsr_backend_candidates_v1 table;
    } candidates;
    struct {
        const void         *raw;
        struct tsr_peaks_v1 table;
    } peaks;
    struct {
        const void                  *raw;
        struct tsr_backend_launch_v1 table;
    } launch;
    struct {
        const void                  *raw;
        struct tsr_backend_window_v1 table;
    } window;
};

#define TSR_SHIM_BACKEND_TABLES 10
extern const struct tsr_plugin_shim_extension tsr_shim_backend_tables[TSR_SHIM_BACKEND_TABLES];

#endif
