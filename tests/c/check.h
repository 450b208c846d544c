/* check.h: a claim of a C test. The first that does not hold ends the program with its place and text. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(claim)                                                                                         \
    do {                                                                                                     \
        if (!(claim)) {                                                                                      \
            (void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
