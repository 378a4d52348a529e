/* SPDX-License-Identifier: Apache-2.0 */
/* The status page. */
#ifndef FRONT_UI_H
#define FRONT_UI_H

#include <stdbool.h>

struct front;
struct http_request;

void ui_get(struct front *f, struct http_request *rq, const char *rest);
/* It asks for one of the page's files, which need no token. */
bool ui_is_open(const struct http_request *rq);

#endif
