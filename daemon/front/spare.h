/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine has to spare, as the kernel estimates it. */
#ifndef FRONT_SPARE_H
#define FRONT_SPARE_H

#include <stdint.h>

/* MiB of memory that programs could have without others being swapped out (MemAvailable of
 * /proc/meminfo, which knows the machine and not the limits of a control group); 0: it cannot be told. */
uint64_t spare_memory_mb(void);

#endif
