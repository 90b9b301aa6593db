/* fuzz/replay.c - runs a fuzz target over the files of the folders given: the corpora as tests
 * in builds that have no libFuzzer. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE       *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0 || st.st_size < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        if (f)
            fclose(f);
        return 1;
    }
    size_t   size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int      bad = !data || fread(data, 1, size, f) != size;
    fclose(f);
    if (bad)
        fprintf(stderr, "%s: cannot read\n", path);
    else
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    return bad;
}

int main(int argc, char **argv)
{
    unsigned long files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            return 1;
        }
        for (struct dirent *e; (e = readdir(dir));) {
            char path[4096];
            if (e->d_name[0] == '.')
                continue;
            int n = snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (n < 0 || (size_t)n >= sizeof path || replay_file(path)) {
                closedir(dir);
                return 1;
            }
            files++;
        }
        closedir(dir);
    }
    printf("%lu files\n", files);
    return files == 0; /* an empty corpus tests nothing */
}
