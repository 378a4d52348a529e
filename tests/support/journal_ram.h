/* SPDX-License-Identifier: Apache-2.0 */
/* The journal as a list in memory: the twin that tests hold the SQLite one against. */
#ifndef SUPPORT_JOURNAL_RAM_H
#define SUPPORT_JOURNAL_RAM_H

#include "daemon/front/journal.h"

/* max_bytes: 0, or how much requests, results and lines may take together (-ENOSPC beyond). */
int journal_ram_open(size_t max_bytes, struct journal **ret, struct nsbox_error *err);

#endif
