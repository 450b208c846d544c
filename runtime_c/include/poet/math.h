/* math.h: the runtime's own functions, so that every core and every libm gives the same bits.
 *
 * Within 2 ulp of the truth over all floats (sqrt: correctly rounded); only float operations, one
 * rounding each. NaN gives NaN. poetgen/arithmetic.py does the same operations in numpy.
 */
#ifndef POET_MATH_H
#define POET_MATH_H

#include "poet/poet.h"

float poet_sqrtf(float x);
float poet_expf(float x);
float poet_logf(float x); /* log 0 = -inf, NaN below 0 */
float poet_tanhf(float x);
float poet_erff(float x);
float poet_sigmoidf(float x); /* 1 / (1 + e^-x), within 3 ulp */

#endif
