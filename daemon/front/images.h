/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /v1/images: the images that requests may name. The store is the operator's: images are imported and
 * removed by `nsbox image`, with the operator's rights, and never over this interface; but what a session
 * has changed can be made an image, by root and the service's owner alone.
 */
#ifndef FRONT_IMAGES_H
#define FRONT_IMAGES_H

#include "daemon/front/front.h"

/* NSBOX_EVENT_FILES of what is neither a session nor a job. */
void images_event(struct front *f, const struct wire_event *w);
bool images_gone(struct front *f, struct http_request *rq);
/* Of a layer's stream (the file is taken): replies to rq when it is in the store, or why it is not. */
void images_commit(struct front *f, struct http_request *rq, const struct session *s,
		   const char *name, int file);
void images_close(struct front *f);

#endif
