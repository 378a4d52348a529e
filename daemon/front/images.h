/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /v1/images: the images that requests may name. The store is the operator's: images are imported and
 * removed by `nsbox image`, with the operator's rights, and never over this interface.
 */
#ifndef FRONT_IMAGES_H
#define FRONT_IMAGES_H

#include "daemon/front/front.h"

/* NSBOX_EVENT_FILES of what is neither a session nor a job. */
void images_event(struct front *f, const struct wire_event *w);
bool images_gone(struct front *f, struct http_request *rq);
void images_close(struct front *f);

#endif
