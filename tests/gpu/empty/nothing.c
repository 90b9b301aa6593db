/* nothing.c - a library without what is looked for in it. */
int tessera_test_nothing(void);
int tessera_test_nothing(void)
{
    return 0;
}
