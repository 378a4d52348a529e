/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of content a file's name promises. */
#ifndef COMMON_MEDIA_TYPE_H
#define COMMON_MEDIA_TYPE_H

/* By its ending; "application/octet-stream" for others. Never NULL. */
const char *media_type_of(const char *path);

#endif
