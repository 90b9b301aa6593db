/* draw_chart DATA.json FILE.svg - draws tessera.peers/1 (docs/lab/llama-cpp.json) as the chart of the README, or a
 *                                 list of `tessera bench --json` (docs/lab/shares.json) as shares of the peak.
 * draw_chart --check DATA.json FILE.svg - exit code 1 if FILE.svg is not what the data give. */
#include "base/json.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static tsr_status draw(const char *data, char **text, size_t *bytes, struct tsr_err *err)
{
    struct tsr_writer w = { 0 };
    json_t           *peers = NULL;
    tsr_status        st = tsr_json_load(&peers, data, 1 << 20, 16, err);
    if (st != TSR_OK)
        return st;
    w.file = open_memstream(text, bytes);
    st = !w.file                ? tsr_fail(err, TSR_E_NOMEM, "out of memory")
         : json_is_array(peers) ? tsr_report_shares(&w, peers, err)
                                : tsr_report_peers(&w, peers, err);
    if (w.file && (fclose(w.file) != 0 || w.error) && st == TSR_OK)
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory");
    json_decref(peers);
    return st;
}

/* The file has exactly these bytes. */
static bool is_same(const char *path, const char *text, size_t bytes)
{
    FILE *f = fopen(path, "rb");
    char *there = malloc(bytes + 1);
    bool  same =
        f && there && fread(there, 1, bytes + 1, f) == bytes && memcmp(there, text, bytes) == 0;
    free(there);
    if (f)
        (void)fclose(f);
    return same;
}

int main(int argc, char **argv)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    bool              check = argc > 1 && strcmp(argv[1], "--check") == 0;
    char             *text = NULL;
    size_t            bytes = 0;
    if (argc != 3 + check) {
        (void)fprintf(stderr, "usage: draw_chart [--check] DATA.json FILE.svg\n");
        return 2;
    }
    const char *data = argv[1 + check], *svg = argv[2 + check];
    tsr_status  st = draw(data, &text, &bytes, &e.err);
    if (st == TSR_OK && !check)
        st = tsr_file_store(svg, text, bytes, &e.err);
    bool differs = st == TSR_OK && check && !is_same(svg, text, bytes);
    if (st != TSR_OK)
        (void)fprintf(stderr, "%s: error: %s\n", data, e.text);
    if (differs)
        (void)fprintf(stderr, "%s: not what %s gives; run draw_chart %s %s\n", svg, data, data,
                      svg);
    free(text);
    return st != TSR_OK ? 2 : differs;
}
