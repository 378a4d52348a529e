/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of replies. */
#ifndef FRONT_JSON_REPLY_H
#define FRONT_JSON_REPLY_H

#include "daemon/common/result_json.h"

int http_status_of(const struct nsbox_error *e);

#endif
