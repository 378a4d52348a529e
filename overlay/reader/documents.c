/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of an image, JSON to records (overlay/image/records.h).
 *
 * OCI image specification 1.1: index, manifest, configuration; media types of Docker's schema 2 are
 * the same documents. And manifest.json of `docker save`. What is written is what the importer
 * needs and nothing else: digests, paths, the choice of one image.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"
#include "overlay/image/records.h"
#include "overlay/reader/reader.h"
#include "policy/json_strict.h"

#define DOCUMENT_MAX (8u << 20)
#define ENTRIES_MAX  1000

struct doc {
	const struct document_options *o;
	FILE *out;
	struct nsbox_error *err;
};

static int refuse(struct doc *d, const char *why)
{
	return nsbox_fail(d->err, NSBOX_E_INVALID, 0, "%s", why);
}

/* ------------------------------------------------------------------ reading values */

static int parse(const char *text, size_t len, struct json_object **ret, struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = DOCUMENT_MAX,
					 .max_depth = JSON_DEPTH_MAX,
					 .max_nodes = 500000,
					 .code = NSBOX_E_INVALID };

	return json_strict_parse(text, len, &lim, ret, err);
}

static struct json_object *member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (o && json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &v);
	return v;
}

/* "" where it is not there or no string. */
static const char *text_of(struct json_object *o, const char *key)
{
	struct json_object *v = member(o, key);

	return v && json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
}

static size_t length_of(struct json_object *list)
{
	size_t n = list && json_object_is_type(list, json_type_array)
			   ? json_object_array_length(list)
			   : 0;

	return MIN(n, (size_t)ENTRIES_MAX);
}

/* The hex digits behind "sha256:", or NULL. */
static const char *sha256_of(const char *digest)
{
	static const char prefix[] = "sha256:";
	const char *hex;

	if (strncmp(digest, prefix, sizeof(prefix) - 1) != 0)
		return NULL;
	hex = digest + sizeof(prefix) - 1;
	return strspn(hex, "0123456789abcdef") == 64 && !hex[64] ? hex : NULL;
}

static int put_digest(struct doc *d, const char *key, const char *digest)
{
	const char *hex = sha256_of(digest);

	if (!hex)
		return refuse(d, "a digest that is no SHA-256");
	record_put(d->out, key, hex);
	return 0;
}

/* What an image is called, without the registry that names mean when they say none. */
static void put_name(struct doc *d, const char *name)
{
	static const char *const usual[] = { "docker.io/", "library/" };

	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		if (!strncmp(name, usual[i], strlen(usual[i])))
			name += strlen(usual[i]);
	if (*name)
		record_put(d->out, "name", name);
}

/* ------------------------------------------------------------------ index */

static bool is_index(const char *media)
{
	return !strcmp(media, "application/vnd.oci.image.index.v1+json") ||
	       !strcmp(media, "application/vnd.docker.distribution.manifest.list.v2+json");
}

static bool is_manifest(const char *media)
{
	return !strcmp(media, "application/vnd.oci.image.manifest.v1+json") ||
	       !strcmp(media, "application/vnd.docker.distribution.manifest.v2+json") || !*media;
}

/* Does an entry's platform fit? One that says none may. */
static bool fits_platform(struct doc *d, struct json_object *entry)
{
	struct json_object *p = member(entry, "platform");
	char name[128];

	if (!p)
		return true;
	nsbox_format(name, sizeof(name), "%s/%s", text_of(p, "os"), text_of(p, "architecture"));
	return !strcmp(name, d->o->platform);
}

static const char *ref_of(struct json_object *entry)
{
	struct json_object *a = member(entry, "annotations");
	const char *name = text_of(a, "io.containerd.image.name");

	return *name ? name : text_of(a, "org.opencontainers.image.ref.name");
}

/* A tag is meant by itself or as the end of a full name. */
static bool fits_ref(struct doc *d, const char *name)
{
	size_t want = strlen(d->o->ref), len = strlen(name);

	if (!want || !strcmp(name, d->o->ref))
		return true;
	return len > want && !strcmp(name + len - want, d->o->ref) &&
	       strchr("/:", name[len - want - 1]);
}

/* An attestation is a manifest, too, and no image. */
static bool is_image(struct json_object *entry)
{
	struct json_object *a = member(entry, "annotations");

	return !*text_of(a, "vnd.docker.reference.type") && !*text_of(entry, "artifactType");
}

struct choice {
	struct json_object *entry;
	unsigned count;
	char names[160];
};

static void note_choice(struct choice *c, struct json_object *entry, const char *name)
{
	size_t len = strlen(c->names);

	/* The same image under several names is one. */
	if (c->entry && !strcmp(text_of(entry, "digest"), text_of(c->entry, "digest")))
		return;
	c->entry = entry;
	c->count++;
	nsbox_format(c->names + len, (int)(sizeof(c->names) - len), "%s%s", len ? ", " : "",
		     *name ? name : text_of(entry, "digest"));
}

static int choose(struct doc *d, struct json_object *list, struct choice *c)
{
	for (size_t i = 0; i < length_of(list); i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		const char *media = text_of(e, "mediaType");

		if ((is_index(media) || is_manifest(media)) && is_image(e) && fits_platform(d, e) &&
		    fits_ref(d, ref_of(e)))
			note_choice(c, e, ref_of(e));
	}
	if (!c->count)
		return nsbox_fail(
			d->err, NSBOX_E_INVALID, ENOENT,
			"the layout has no image for %s%s%s (--platform and --ref choose)",
			d->o->platform, *d->o->ref ? " called " : "", d->o->ref);
	if (c->count > 1)
		return nsbox_fail(d->err, NSBOX_E_INVALID, 0,
				  "the layout holds several images: choose one with --ref: %s",
				  c->names);
	return 0;
}

int document_index(const char *text, size_t len, const struct document_options *o, FILE *out,
		   struct nsbox_error *err)
{
	struct doc d = { o, out, err };
	struct choice c = { 0 };
	struct json_object *v = NULL;
	int r = parse(text, len, &v, err);

	if (r == 0)
		r = choose(&d, member(v, "manifests"), &c);
	if (r == 0)
		r = put_digest(&d, is_index(text_of(c.entry, "mediaType")) ? "index" : "manifest",
			       text_of(c.entry, "digest"));
	if (r == 0) /* the other annotation is a tag alone */
		put_name(&d, text_of(member(c.entry, "annotations"), "io.containerd.image.name"));
	json_object_put(v);
	return r;
}

/* ------------------------------------------------------------------ manifest */

/* Only what the reader of archives inflates, and what is part of the image itself. */
static bool is_layer(const char *media)
{
	static const char *const known[] = {
		"application/vnd.oci.image.layer.v1.tar",
		"application/vnd.oci.image.layer.v1.tar+gzip",
		"application/vnd.oci.image.layer.v1.tar+zstd",
		"application/vnd.docker.image.rootfs.diff.tar",
		"application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.diff.tar.zstd",
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(media, known[i]))
			return true;
	return false;
}

static int put_layers(struct doc *d, struct json_object *list)
{
	int r = 0;

	if (!list || !json_object_is_type(list, json_type_array))
		return refuse(d, "the manifest has no layers");
	if (json_object_array_length(list) > ENTRIES_MAX)
		return refuse(d, "the manifest has too many layers");
	for (size_t i = 0; r == 0 && i < length_of(list); i++) {
		struct json_object *e = json_object_array_get_idx(list, i);

		if (!is_layer(text_of(e, "mediaType")))
			return nsbox_fail(d->err, NSBOX_E_UNSUPPORTED, 0,
					  "a layer of type '%s', which is none of files",
					  text_of(e, "mediaType"));
		r = put_digest(d, "layer", text_of(e, "digest"));
	}
	return r;
}

int document_manifest(const char *text, size_t len, const struct document_options *o, FILE *out,
		      struct nsbox_error *err)
{
	struct doc d = { o, out, err };
	struct json_object *v = NULL;
	int r = parse(text, len, &v, err);

	if (r == 0)
		r = put_digest(&d, "config", text_of(member(v, "config"), "digest"));
	if (r == 0)
		r = put_layers(&d, member(v, "layers"));
	json_object_put(v);
	return r;
}

/* ------------------------------------------------------------------ docker save */

static void add_name(char *names, size_t size, const char *name)
{
	size_t len = strlen(names);

	nsbox_format(names + len, (int)(size - len), "%s%s", len ? ", " : "", name);
}

static struct json_object *choose_saved(struct doc *d, struct json_object *list)
{
	struct json_object *found = NULL;
	char names[160] = "";
	unsigned count = 0;

	for (size_t i = 0; i < length_of(list); i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct json_object *tags = member(e, "RepoTags");
		bool fits = e && !*d->o->ref; /* "null" is an entry, too */

		for (size_t k = 0; k < length_of(tags); k++) {
			const char *tag =
				json_object_get_string(json_object_array_get_idx(tags, k));

			if (!tag)
				continue;
			fits |= fits_ref(d, tag);
			add_name(names, sizeof(names), tag);
		}
		count += fits;
		found = fits ? e : found;
	}
	if (count == 1)
		return found;
	nsbox_fail(d->err, NSBOX_E_INVALID, count ? 0 : ENOENT,
		   "the archive holds %s: choose one with --ref: %s",
		   count ? "several images" : "no such image", names);
	return NULL;
}

/* The first of its names that is meant. */
static void put_saved_name(struct doc *d, struct json_object *tags)
{
	for (size_t i = 0; i < length_of(tags); i++) {
		const char *tag = json_object_get_string(json_object_array_get_idx(tags, i));

		if (tag && fits_ref(d, tag)) {
			put_name(d, tag);
			return;
		}
	}
}

static int put_saved(struct doc *d, struct json_object *e)
{
	struct json_object *layers = member(e, "Layers");

	if (!*text_of(e, "Config") || !layers)
		return refuse(d, "manifest.json names no configuration or no layers");
	record_put(d->out, "configpath", text_of(e, "Config"));
	put_saved_name(d, member(e, "RepoTags"));
	for (size_t i = 0; i < length_of(layers); i++) {
		const char *path = json_object_get_string(json_object_array_get_idx(layers, i));

		if (!path || !*path)
			return refuse(d, "manifest.json names a layer without a path");
		record_put(d->out, "layerpath", path);
	}
	return 0;
}

int document_docker(const char *text, size_t len, const struct document_options *o, FILE *out,
		    struct nsbox_error *err)
{
	struct doc d = { o, out, err };
	struct json_object *v = NULL, *e;
	int r = parse(text, len, &v, err);

	if (r == 0) {
		e = choose_saved(&d, v);
		r = e ? put_saved(&d, e) : -EINVAL;
	}
	json_object_put(v);
	return r;
}

/* ------------------------------------------------------------------ configuration */

static int put_list(struct doc *d, struct json_object *o, const char *member_name, const char *key)
{
	struct json_object *list = member(o, member_name);

	for (size_t i = 0; i < length_of(list); i++) {
		const char *v = json_object_get_string(json_object_array_get_idx(list, i));

		if (!v)
			return refuse(d, "a list of the configuration holds what is no text");
		/* Names without a value, and values without a name, are none of an environment. */
		if (!strcmp(key, "env") && (*v == '=' || !strchr(v, '=')))
			continue;
		record_put(d->out, key, v);
	}
	return 0;
}

static int put_platform(struct doc *d, struct json_object *v)
{
	char name[128];

	nsbox_format(name, sizeof(name), "%s/%s", text_of(v, "os"), text_of(v, "architecture"));
	if (strcmp(name, d->o->platform) != 0)
		return nsbox_fail(d->err, NSBOX_E_UNSUPPORTED, 0,
				  "the image is for %s, wanted is %s (--platform)", name,
				  d->o->platform);
	record_put(d->out, "platform", name);
	return 0;
}

static int put_diffs(struct doc *d, struct json_object *list)
{
	int r = 0;

	if (!list)
		return refuse(d, "the configuration lists no layers (rootfs.diff_ids)");
	for (size_t i = 0; r == 0 && i < length_of(list); i++) {
		const char *v = json_object_get_string(json_object_array_get_idx(list, i));

		r = put_digest(d, "diff", v ? v : "");
	}
	return r;
}

int document_config(const char *text, size_t len, const struct document_options *o, FILE *out,
		    struct nsbox_error *err)
{
	struct doc d = { o, out, err };
	struct json_object *v = NULL, *c;
	int r = parse(text, len, &v, err);

	c = member(v, "config");
	if (r == 0)
		r = put_platform(&d, v);
	if (r == 0)
		r = put_diffs(&d, member(member(v, "rootfs"), "diff_ids"));
	if (r == 0)
		r = put_list(&d, c, "Env", "env");
	if (r == 0)
		r = put_list(&d, c, "Entrypoint", "entrypoint");
	if (r == 0)
		r = put_list(&d, c, "Cmd", "cmd");
	if (r == 0 && *text_of(c, "WorkingDir"))
		record_put(out, "workdir", text_of(c, "WorkingDir"));
	if (r == 0 && *text_of(c, "User"))
		record_put(out, "user", text_of(c, "User"));
	json_object_put(v);
	return r;
}
