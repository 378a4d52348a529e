/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rest of the library may know about a prepared image: its root blob (ROOT_MAGIC), a
 * list of OP_LOWER (topmost first) and then OP_BIND operations, checked by blob_check().
 */
#ifndef OVERLAY_ROOT_H
#define OVERLAY_ROOT_H

#include <nsbox/image.h>

#include "nsbox/plan_build.h"

/* Borrowed: lives as long as the root. */
const struct blob *nsbox_root_blob(const struct nsbox_root *root);
/* The state directory that it was prepared in. */
const char *nsbox_root_state(const struct nsbox_root *root);

#endif
