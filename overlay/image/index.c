/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of an image: a text of records that names its layers and holds what runs need of its
 * configuration. It is written by the importer and read by the owner of sandboxes, who never sees
 * the JSON it came from. Unknown keys are refused: a store that a later version wrote says so.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "nsbox/util.h"
#include "overlay/image/records.h"
#include "overlay/image/store.h"

#define INDEX_MAX   (4u << 20)
#define STRINGS_MAX 4096

int strings_add(struct strings *s, const char *text, struct nsbox_error *err)
{
	if (s->count >= STRINGS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "image: more than %d values of a kind",
				  STRINGS_MAX);
	if (s->count + 1 >= s->room) {
		size_t room = s->room ? s->room * 2 : 8;
		char **item = reallocarray(s->item, room, sizeof(*item));

		if (!item)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image");
		s->item = item;
		s->room = room;
	}
	s->item[s->count] = strdup(text);
	if (!s->item[s->count])
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image");
	s->item[++s->count] = NULL;
	return 0;
}

void strings_done(struct strings *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->item[i]);
	free(s->item);
	*s = (struct strings){ 0 };
}

/* Single values and lists, by key: what there is, for reading, writing and freeing alike. */
static const struct {
	const char *key;
	size_t offset;
} single[] = {
	{ "digest", offsetof(struct image_index, digest) },
	{ "source", offsetof(struct image_index, source) },
	{ "platform", offsetof(struct image_index, platform) },
	{ "owner", offsetof(struct image_index, owner) },
	{ "workdir", offsetof(struct image_index, workdir) },
	{ "user", offsetof(struct image_index, user) },
	{ "passwd", offsetof(struct image_index, passwd) },
	{ "group", offsetof(struct image_index, group) },
}, list[] = {
	{ "dir", offsetof(struct image_index, dirs) },
	{ "file", offsetof(struct image_index, files) },
	{ "env", offsetof(struct image_index, env) },
	{ "entrypoint", offsetof(struct image_index, entrypoint) },
	{ "cmd", offsetof(struct image_index, cmd) },
}, number[] = {
	{ "bytes", offsetof(struct image_index, bytes) },
	{ "entries", offsetof(struct image_index, entries) },
};

#define AT(x, row, type) ((type *)(void *)((char *)(x) + (row).offset))

void index_done(struct image_index *x)
{
	for (size_t i = 0; i < ARRAY_SIZE(single); i++)
		free_ptr(AT(x, single[i], char *));
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		strings_done(AT(x, list[i], struct strings));
	free_ptr(&x->layer);
	x->layers = 0;
}

int index_add_layer(struct image_index *x, const char *digest, uint64_t bytes,
		    struct nsbox_error *err)
{
	struct image_layer *l;

	if (x->layers >= IMAGE_LAYERS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "image of more than %d layers",
				  IMAGE_LAYERS_MAX);
	l = reallocarray(x->layer, x->layers + 1, sizeof(*l));
	if (!l)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image");
	x->layer = l;
	l = &x->layer[x->layers++];
	nsbox_format(l->digest, sizeof(l->digest), "%s", digest);
	l->bytes = bytes;
	return 0;
}

static int bad_value(const char *key, struct nsbox_error *err)
{
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "image index: value of '%s'", key);
}

/* "DIGEST/BYTES" */
static int layer_record(struct image_index *x, const char *value, struct nsbox_error *err)
{
	char digest[DIGEST_TEXT];
	uint64_t bytes;

	nsbox_format(digest, sizeof(digest), "%s", value);
	if (strlen(value) < DIGEST_TEXT || value[DIGEST_TEXT - 1] != '/' || !digest_ok(digest) ||
	    !parse_u64(value + DIGEST_TEXT, &bytes))
		return bad_value("layer", err);
	return index_add_layer(x, digest, bytes, err);
}

int index_record(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	struct image_index *x = ctx;

	if (!strcmp(key, "layer"))
		return layer_record(x, value, err);
	for (size_t i = 0; i < ARRAY_SIZE(single); i++) {
		char **at = AT(x, single[i], char *);

		if (strcmp(key, single[i].key) != 0)
			continue;
		if (*at)
			return bad_value(key, err);
		*at = strdup(value);
		return *at ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image");
	}
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		if (!strcmp(key, list[i].key))
			return strings_add(AT(x, list[i], struct strings), value, err);
	for (size_t i = 0; i < ARRAY_SIZE(number); i++)
		if (!strcmp(key, number[i].key))
			return parse_u64(value, AT(x, number[i], uint64_t)) ? 0
									    : bad_value(key, err);
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "image index: unknown key '%s'", key);
}

static void put_number(FILE *f, const char *key, uint64_t v)
{
	fprintf(f, "%s %llu\n", key, (unsigned long long)v);
}

int index_text(const struct image_index *x, char **ret, size_t *ret_len, struct nsbox_error *err)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);
	bool ok;

	if (!f)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image");
	for (size_t i = 0; i < ARRAY_SIZE(single); i++) {
		const char *v = *AT(x, single[i], char *const);

		if (v)
			record_put(f, single[i].key, v);
	}
	for (size_t i = 0; i < ARRAY_SIZE(number); i++)
		put_number(f, number[i].key, *AT(x, number[i], const uint64_t));
	for (size_t i = 0; i < x->layers; i++)
		fprintf(f, "layer %s/%llu\n", x->layer[i].digest,
			(unsigned long long)x->layer[i].bytes);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		const struct strings *s = AT(x, list[i], const struct strings);

		for (size_t k = 0; k < s->count; k++)
			record_put(f, list[i].key, s->item[k]);
	}
	ok = !ferror(f);
	if (fclose(f) != 0 || !ok || *ret_len > INDEX_MAX) {
		free(text);
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "the image's configuration is too large");
	}
	*ret = text;
	return 0;
}

int index_read(int fd, struct image_index *ret, struct nsbox_error *err)
{
	struct image_index x = { 0 };
	auto_free char *text = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "image index");
	if (!S_ISREG(st.st_mode) || st.st_size > INDEX_MAX || st.st_uid != geteuid())
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "image index: not a file of the store's owner");
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image index");
	if (lseek(fd, 0, SEEK_SET) < 0 || read_full(fd, text, (size_t)st.st_size) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "read the image index");
	r = records_parse(text, (size_t)st.st_size, index_record, &x, err);
	if (r == 0 && (!x.digest || !x.source || !x.owner || !x.layers))
		r = nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "image index: incomplete");
	if (r < 0)
		index_done(&x);
	else
		*ret = x;
	return r;
}

int index_open(const struct store *s, const char *id, int operation, int *ret_fd,
	       struct nsbox_error *err)
{
	auto_close int fd = openat(s->ids_fd, id, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the index of image '%.12s'", id);
	do
		r = operation ? flock(fd, operation) : 0;
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "lock the index of image '%.12s'", id);
	*ret_fd = take_fd(&fd);
	return 0;
}

int image_read(const char *state_dir, const char *name, struct image_index *ret,
	       struct nsbox_error *err)
{
	char id[DIGEST_TEXT];
	auto_close int fd = -1;
	struct store s;
	int r = store_open(state_dir, &s, err);

	if (r < 0)
		return r;
	r = store_find(&s, name, id, err);
	if (r == 0)
		r = index_open(&s, id, 0, &fd, err);
	if (r == 0)
		r = index_read(fd, ret, err);
	store_done(&s);
	return r;
}
