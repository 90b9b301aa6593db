/* residuals - the error that compensation leaves in a linear, computed again from the tensors of its file
 * (docs/formats/compensation.md), in long double.  No code of the program is in it.
 *
 *   residuals A AT TYPE B AT TYPE ROWS COLS BITS FILE CODES STRIDE SCALES OUTPUTS
 *       squared error of B [rows, cols] against A after the codes are added to it
 *
 * CODES and SCALES are places in FILE, STRIDE bytes lie from one input's codes to the next's. */
#include "residuals.h"

int main(int argc, char **argv)
{
    char **a = argv + 1;
    if (argc != 15) {
        die("usage",
            "residuals A AT TYPE B AT TYPE ROWS COLS BITS FILE CODES STRIDE SCALES OUTPUTS");
        return 2;
    }
    uint64_t rows = number(a[6]), cols = number(a[7]);
    float   *was = read_numbers(a[0], number(a[1]), a[2], rows * cols);
    float   *is = read_numbers(a[3], number(a[4]), a[5], rows * cols);
    real     error = 0;
    if (number(a[8]) != 4)
        die("not 4 bits", a[8]);
    struct part p =
        read_part(a[9], number(a[10]), number(a[11]), number(a[12]), number(a[13]), cols);
    if (p.outputs != rows)
        die("not as many outputs as rows", a[13]);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++) {
            real e = (real)was[r * cols + c] - (real)is[r * cols + c] - (real)value(&p, c, r);
            error += e * e;
        }
    (void)printf("%.17Lg\n", error);
    free(was);
    free(is);
    free(p.codes);
    free(p.scales);
    return 0;
}
