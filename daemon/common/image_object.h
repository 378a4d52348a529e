/* SPDX-License-Identifier: Apache-2.0 */
/* An image of the store as JSON, as `nsbox image` and the service show it. */
#ifndef DAEMON_IMAGE_OBJECT_H
#define DAEMON_IMAGE_OBJECT_H

#include "overlay/image/store.h"

struct json_object;

/* whole: with what its configuration says of programs. */
struct json_object *image_object(const char *name, const char *id, const struct image_index *x,
				 bool whole);

#endif
