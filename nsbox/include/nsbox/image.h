/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: what a sandbox has for a root. Implemented by overlay/.
 *
 * An image resolves to a *root list*: overlay layers of the host and binds from the host, as the
 * owner of sandboxes (never the author of a manifest) defines them. The image "host" is the
 * host's own /usr and the parts of /etc a program needs, read-only, over a generated skeleton.
 * Others are imported by nsbox(1): layers of the state directory, in full.
 */
#ifndef NSBOX_IMAGE_H
#define NSBOX_IMAGE_H

#include <nsbox/error.h>
#include <stddef.h>

#pragma GCC visibility push(default)

struct nsbox_root; /* immutable once prepared; may serve any number of sandboxes */

/*
 * Prepare the image called `name`, or with an id that begins so (NULL: "host"); it cannot be
 * removed while the root is there. `state_dir` (NULL: nsbox_state_dir()) is where
 * skeletons and imported images are kept; it is created, 0755, owned by the caller. Cheap when
 * the skeleton is there already and its sources (host /etc files, the runner) are unchanged.
 */
int nsbox_root_prepare(const char *state_dir, const char *name, struct nsbox_root **ret,
		       struct nsbox_error *err);
void nsbox_root_free(struct nsbox_root *root);

/*
 * Where state is kept: $NSBOX_STATE_DIR; else /var/lib/nsbox for root, $XDG_STATE_HOME/nsbox or
 * $HOME/.local/state/nsbox for others. Touches nothing.
 */
int nsbox_state_dir(char *buf, size_t size, struct nsbox_error *err);

const char *nsbox_root_name(const struct nsbox_root *root);
const char *nsbox_root_digest(const struct nsbox_root *root); /* "sha256:..." or "host:..." */

#pragma GCC visibility pop

#endif
