/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepared images: "host", or one of the store. What is left of preparing is a root blob (layers,
 * binds), a digest, and whatever keeps those layers from being removed.
 */
#include "overlay/root.h"

#include <string.h>

#include "nsbox/util.h"
#include "overlay/image/store.h"
#include "overlay/internal.h"

struct nsbox_root {
	char *name;
	char *digest;
	char *state; /* path */
	void *bytes;
	struct blob blob;	  /* of bytes */
	struct skeleton skeleton; /* host */
	int image_lock;		  /* imported images: nobody removes it while this is open */
};

/* The sources may change while they are copied; a package manager is done after a few rounds. */
#define PREPARE_ROUNDS 5

static int prepare_host_once(const struct state_dir *state, struct nsbox_root *root,
			     struct nsbox_error *err)
{
	struct sources src = { 0 };
	size_t len = 0;
	int r = sources_scan(state, &src, err);

	if (r == 0)
		r = skeleton_ensure(state, &src, &root->skeleton, err);
	if (r == 0)
		r = host_image_blob(&src, root->skeleton.path, &root->bytes, &len, err);
	sources_done(&src);
	if (r < 0)
		return r;
	root->blob = (struct blob){ root->bytes, len };
	root->digest = malloc(sizeof(root->skeleton.name) + 8);
	if (!root->digest)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image");
	nsbox_format(root->digest, sizeof(root->skeleton.name) + 8, "host:%s", root->skeleton.name);
	return blob_check(root->bytes, len, ROOT_MAGIC, err);
}

static int prepare_host(const struct state_dir *state, struct nsbox_root *root,
			struct nsbox_error *err)
{
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < PREPARE_ROUNDS; i++)
		r = prepare_host_once(state, root, err);
	return r;
}

static int prepare_imported(const struct state_dir *state, struct nsbox_root *root,
			    struct nsbox_error *err)
{
	size_t len = 0;
	int r = image_root_blob(state, root->name, &root->bytes, &len, &root->digest,
				&root->image_lock, err);

	if (r < 0)
		return r;
	root->blob = (struct blob){ root->bytes, len };
	return blob_check(root->bytes, len, ROOT_MAGIC, err);
}

int nsbox_root_prepare(const char *state_dir, const char *name, struct nsbox_root **ret,
		       struct nsbox_error *err)
{
	struct state_dir state = { .fd = -1 };
	struct nsbox_root *root = calloc(1, sizeof(*root));
	int r;

	if (root)
		root->name = strdup(name ? name : "host");
	if (!root || !root->name) {
		free(root);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "prepare an image");
	}
	root->skeleton.lock_fd = root->image_lock = -1;
	r = state_open(state_dir, &state, err);
	if (r == 0)
		r = strcmp(root->name, "host") ? prepare_imported(&state, root, err)
					       : prepare_host(&state, root, err);
	root->state = take_ptr(&state.path);
	state_done(&state);
	if (r < 0) {
		if (err)
			err->stage = NSBOX_STAGE_IMAGE;
		nsbox_error_prefix(err, "image '%s'", name ? name : "host");
		nsbox_root_free(root);
		return r;
	}
	*ret = root;
	return 0;
}

void nsbox_root_free(struct nsbox_root *root)
{
	if (!root)
		return;
	skeleton_done(&root->skeleton);
	close_fd(&root->image_lock);
	free(root->name);
	free(root->digest);
	free(root->state);
	free(root->bytes);
	free(root);
}

const char *nsbox_root_name(const struct nsbox_root *root)
{
	return root->name;
}

const char *nsbox_root_digest(const struct nsbox_root *root)
{
	return root->digest;
}

const char *nsbox_root_state(const struct nsbox_root *root)
{
	return root->state;
}

const struct blob *nsbox_root_blob(const struct nsbox_root *root)
{
	return &root->blob;
}
