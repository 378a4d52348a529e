/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One reading of a zip file.
 *
 * A zip file says everything twice: in a header before each entry and in the directory at its end.
 * Readers differ in which they believe, in where they look for the directory, and in what they do
 * with overlapping entries; a file that is checked by one and unpacked by another can so be two
 * different things. Only files with a single reading pass:
 *
 *	[header, data, (descriptor)] ...	in the order of the directory, without overlap or gap
 *	[directory record] ...
 *	[end record]				exactly one, at the end of the file
 *
 * and both descriptions of an entry agree in name, method, flags, checksum and sizes. Encrypted
 * entries, methods other than store and deflate, several disks and zip64 (which nothing within the
 * size limit needs) are refused.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

#define SIG_LOCAL      0x04034b50u
#define SIG_CENTRAL    0x02014b50u
#define SIG_END	       0x06054b50u
#define SIG_DESCRIPTOR 0x08074b50u
#define LOCAL_SIZE     30
#define CENTRAL_SIZE   46
#define END_SIZE       22

#define FLAG_ENCRYPTED	0x0001
#define FLAG_DESCRIPTOR 0x0008
#define FLAG_PATCH	0x0020
#define FLAG_STRONG	0x0040
#define FLAG_MASKED	0x2000

#define SYSTEM_UNIX  3
#define SYSTEM_MACOS 19

struct zip {
	const unsigned char *data;
	size_t dir_start, dir_end; /* the directory */
	struct zip_facts facts;
};

/* What header and directory both say. */
struct record {
	unsigned flags, method;
	uint32_t crc, packed, size;
	const unsigned char *name;
	size_t name_len;
};

static unsigned get16(const unsigned char *p)
{
	return (unsigned)p[0] | (unsigned)p[1] << 8;
}

static uint32_t get32(const unsigned char *p)
{
	return get16(p) | (uint32_t)get16(p + 2) << 16;
}

bool zip_is(const unsigned char *data, size_t len)
{
	return len >= 4 && data[0] == 'P' && data[1] == 'K' &&
	       (get32(data) == SIG_LOCAL || get32(data) == SIG_END);
}

static int bad(struct nsbox_error *err, const char *why)
{
	return nsbox_fail(err, NSBOX_E_INVALID, 0, "zip: %s", why);
}

static int bad_entry(const struct record *e, struct nsbox_error *err, const char *why)
{
	char name[1024];
	size_t n = MIN(e->name_len, sizeof(name) - 1);
	int r = nsbox_fail(err, NSBOX_E_INVALID, 0, "%s", why);

	memcpy(name, e->name, n);
	name[n] = '\0';
	for (size_t i = 0; i < n; i++) { /* a NUL must not hide what follows it */
		if (!name[i])
			name[i] = '?';
	}
	name_blame(name, err);
	return r;
}

static bool reaches_end(const unsigned char *end, const unsigned char *stop)
{
	return stop - end >= END_SIZE && get32(end) == SIG_END &&
	       end + END_SIZE + get16(end + 20) == stop;
}

/*
 * Readers look for the end record backwards from the end of the file. So the last place with its
 * signature has to be it, and its comment has to end where the file ends. A second one with the
 * same property, before it, would be the mark of a file with two readings; that of a zip file
 * stored inside this one does not have it.
 */
static const unsigned char *find_end(const unsigned char *data, size_t len, struct nsbox_error *err)
{
	const unsigned char *stop = data + len, *end = NULL;
	size_t low = len > END_SIZE + 65535 ? len - END_SIZE - 65535 : 0;

	for (size_t i = len - MIN(len, 4); !end && i > low; i--) {
		if (get32(data + i) == SIG_END)
			end = data + i;
	}
	if (!end && len >= 4 && get32(data + low) == SIG_END)
		end = data + low;
	if (!end) {
		bad(err, "no directory at its end (truncated?)");
		return NULL;
	}
	if (!reaches_end(end, stop)) {
		bad(err, "bytes after the end record");
		return NULL;
	}
	for (const unsigned char *p = data + low; p < end; p++) {
		if (reaches_end(p, stop)) {
			bad(err, "more than one end record");
			return NULL;
		}
	}
	return end;
}

static int read_end(const unsigned char *data, size_t len, struct zip *z, struct nsbox_error *err)
{
	const unsigned char *end = find_end(data, len, err);

	if (!end)
		return -EINVAL;
	if (get16(end + 4) || get16(end + 6) || get16(end + 8) != get16(end + 10))
		return bad(err, "of several parts");
	z->facts.entries = get16(end + 10);
	z->dir_start = get32(end + 16);
	z->dir_end = (size_t)(end - data);
	if (z->facts.entries == 0xffff || get32(end + 12) == UINT32_MAX ||
	    z->dir_start == UINT32_MAX)
		return bad(err, "zip64 is not accepted");
	if (z->dir_start > z->dir_end || z->dir_end - z->dir_start != get32(end + 12))
		return bad(err, "its directory is not where the end record says");
	return 0;
}

/* In a directory record flags stand at 8, in a header at 6; the rest follows alike. */
static void read_record(const unsigned char *p, struct record *ret)
{
	ret->flags = get16(p);
	ret->method = get16(p + 2);
	ret->crc = get32(p + 8);
	ret->packed = get32(p + 12);
	ret->size = get32(p + 16);
	ret->name_len = get16(p + 20);
}

/* Info-ZIP's Unicode path: version, checksum of the name in the header, the name in UTF-8. Readers that
 * do not know it decode the header's name, and have to come to the same. */
static bool same_name(const unsigned char *p, size_t n, const struct record *e)
{
	char name[4096];

	if (n < 5 || p[0] != 1 ||
	    !name_decode((const char *)e->name, e->name_len, name, sizeof(name)))
		return false;
	return strlen(name) == n - 5 && memcmp(p + 5, name, n - 5) == 0;
}

/* Extra fields that may bring another name or other sizes; all readers ignore the rest. */
static const char *judge_extra(const unsigned char *p, size_t len, const struct record *e)
{
	while (len >= 4) {
		unsigned id = get16(p), n = get16(p + 2);

		if (n > len - 4)
			return "a broken extra field";
		if (id == 0x0001)
			return "zip64 is not accepted";
		if (id == 0x7075 && !same_name(p + 4, n, e))
			return "a second name in an extra field";
		if (id == 0x9901)
			return "it is encrypted";
		p += 4 + n;
		len -= 4 + n;
	}
	return NULL; /* up to three bytes of padding are common */
}

static const char *judge_central(const struct record *e)
{
	if (e->flags & (FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED))
		return "it is encrypted";
	if (e->flags & FLAG_PATCH)
		return "it is a patch";
	if (e->method != 0 && e->method != 8)
		return "its compression method is not supported (store and deflate are)";
	if (e->packed == UINT32_MAX || e->size == UINT32_MAX)
		return "zip64 is not accepted";
	if (e->method == 0 && e->packed != e->size)
		return "stored with two different sizes";
	if (e->name_len == 0 || memchr(e->name, '\0', e->name_len))
		return "its name is empty or holds a NUL byte";
	/* libarchive makes slashes of them, others do not. */
	if (memchr(e->name, '\\', e->name_len))
		return "its name holds a backslash";
	return NULL;
}

static bool has_mode(const unsigned char *central)
{
	return central[5] == SYSTEM_UNIX || central[5] == SYSTEM_MACOS;
}

/*
 * Where the writer was a Unix system the upper half of the attributes is a mode. libarchive takes
 * a FIFO for a file; what is neither file, directory nor link is refused here.
 */
static const char *judge_type(const unsigned char *central)
{
	unsigned type = (get32(central + 38) >> 16) & 0170000;

	if (!has_mode(central))
		return NULL;
	if (type == 0 || type == 0100000 || type == 0040000 || type == 0120000)
		return NULL;
	return "neither a file, a directory nor a symbolic link";
}

static const char *judge_pair(const struct record *c, const struct record *l)
{
	bool later = c->flags & FLAG_DESCRIPTOR; /* then the header may leave them at zero */

	if (l->name_len != c->name_len || memcmp(l->name, c->name, c->name_len) != 0)
		return "its header gives another name than the directory";
	if (l->flags != c->flags || l->method != c->method)
		return "its header and the directory differ in flags or method";
	if (later && l->crc == 0 && l->packed == 0 && l->size == 0)
		return NULL;
	if (l->crc != c->crc || l->packed != c->packed || l->size != c->size)
		return "its header and the directory differ in size or checksum";
	return NULL;
}

/* The data descriptor at p, with or without its signature; its length, or 0 where it differs. */
static size_t descriptor_size(const unsigned char *p, size_t room, const struct record *c)
{
	size_t skip = room >= 4 && get32(p) == SIG_DESCRIPTOR ? 4 : 0;

	if (room < skip + 12 || get32(p + skip) != c->crc || get32(p + skip + 4) != c->packed ||
	    get32(p + skip + 8) != c->size)
		return 0;
	return skip + 12;
}

/* The header at *at belongs to directory record c; *at moves behind its data. */
static const char *check_local(const struct zip *z, const struct record *c, size_t *at)
{
	const unsigned char *p = z->data + *at;
	size_t room = z->dir_start - *at, extra, head;
	struct record l;
	const char *why;

	if (room < LOCAL_SIZE || get32(p) != SIG_LOCAL)
		return "no header where the directory says";
	read_record(p + 6, &l);
	extra = get16(p + 28);
	l.name = p + LOCAL_SIZE;
	head = LOCAL_SIZE + l.name_len + extra;
	if (room < head || room - head < c->packed)
		return "it reaches into the directory";
	why = judge_pair(c, &l);
	if (!why)
		why = judge_extra(p + LOCAL_SIZE + l.name_len, extra, c);
	if (why)
		return why;
	*at += head + c->packed;
	if (c->flags & FLAG_DESCRIPTOR) {
		size_t n = descriptor_size(z->data + *at, z->dir_start - *at, c);

		if (!n)
			return "its data descriptor differs from the directory";
		*at += n;
	}
	return NULL;
}

/* One record of the directory at *dir, whose header has to be at *at. */
static int check_entry(struct zip *z, size_t *dir, size_t *at, struct nsbox_error *err)
{
	const unsigned char *p = z->data + *dir;
	size_t room = z->dir_end - *dir, extra, comment;
	struct record c;
	const char *why;

	if (room < CENTRAL_SIZE || get32(p) != SIG_CENTRAL)
		return bad(err, "a broken directory");
	read_record(p + 8, &c);
	c.name = p + CENTRAL_SIZE;
	extra = get16(p + 30);
	comment = get16(p + 32);
	if (room < CENTRAL_SIZE + c.name_len + extra + comment)
		return bad(err, "a broken directory");
	why = judge_central(&c);
	if (!why)
		why = judge_type(p);
	if (!why)
		why = judge_extra(c.name + c.name_len, extra, &c);
	if (!why && get32(p + 42) != *at)
		why = "entries overlap, or there are bytes between them";
	if (!why)
		why = check_local(z, &c, at);
	if (why)
		return bad_entry(&c, err, why);
	z->facts.modes |= has_mode(p);
	*dir += CENTRAL_SIZE + c.name_len + extra + comment;
	return 0;
}

int zip_check(const unsigned char *data, size_t len, struct zip_facts *ret, struct nsbox_error *err)
{
	struct zip z = { .data = data };
	size_t dir, at = 0;
	int r = read_end(data, len, &z, err);

	if (r < 0)
		return r;
	dir = z.dir_start;
	for (unsigned i = 0; i < z.facts.entries; i++) {
		r = check_entry(&z, &dir, &at, err);
		if (r < 0)
			return r;
	}
	if (dir != z.dir_end)
		return bad(err, "its directory has more records than the end record says");
	if (at != z.dir_start)
		return bad(err, "bytes between the last entry and the directory");
	*ret = z.facts;
	return 0;
}
