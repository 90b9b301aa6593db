/* wide_model FOLDER NAME: one of the models of tests/golden/wide.h, whose linears can be cut for 2 and 4 ranks. */
#include "../golden/wide.h"

#include <sys/stat.h>

int main(int argc, char **argv)
{
    if (argc != 3 || mkdir(argv[1], 0777) != 0)
        return 2;
    wide_write(argv[2], argv[1]);
    return 0;
}
