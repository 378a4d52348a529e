/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol versions: which ones of its libraries a file wants, and which ones a library offers. They
 * are chains of records within the file; a record may only point forward, so that no chain is
 * endless, and all records together are counted.
 */
#include <elf.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/skill/elf.h"

static int add(struct elf_file *f, struct elf_version **list, size_t *n, uint64_t name,
	       const char *file, bool weak)
{
	struct elf_version *v;
	int r;

	if (*n >= ELF_VERSION_MAX)
		return elf_damaged(f, "it has more than 1024 symbol versions");
	v = reallocarray(*list, *n + 1, sizeof(*v));
	if (!v)
		return nsbox_fail(f->err, NSBOX_E_NOMEM, ENOMEM, "read an ELF file");
	*list = v;
	v += *n;
	*v = (struct elf_version){ .file = file ? strdup(file) : NULL, .weak = weak };
	++*n;
	if (file && !v->file)
		return nsbox_fail(f->err, NSBOX_E_NOMEM, ENOMEM, "read an ELF file");
	r = elf_string(f, name, &v->name);
	return r;
}

#define U16(p, at) ((uint16_t)elf_number(f, (p) + (at), 2))
#define U32(p, at) ((uint32_t)elf_number(f, (p) + (at), 4))

/* Elf64_Vernaux, which is Elf32_Vernaux: hash, flags, other, name, next. */
static int read_wanted_of(struct elf_file *f, struct elf_info *e, uint64_t at, unsigned count,
			  const char *file)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned char a[16];
		int r = elf_bytes(f, at, a, sizeof(a));

		if (r == 0)
			r = add(f, &e->wants, &e->n_wants, U32(a, 8), file,
				U16(a, 4) & VER_FLG_WEAK);
		if (r < 0)
			return r;
		if (!U32(a, 12))
			break;
		at += U32(a, 12);
	}
	return 0;
}

/* Elf64_Verneed: version, count, file, aux, next. */
static int read_wanted(struct elf_file *f, struct elf_info *e)
{
	uint64_t at;
	int r = elf_offset(f, f->verneed, &at);

	for (uint64_t i = 0; r == 0 && i < f->n_verneed; i++) {
		auto_free char *file = NULL;
		unsigned char v[16];

		r = elf_bytes(f, at, v, sizeof(v));
		if (r == 0)
			r = elf_string(f, U32(v, 4), &file);
		if (r == 0)
			r = read_wanted_of(f, e, at + U32(v, 8), U16(v, 2), file);
		if (r < 0 || !U32(v, 12))
			break;
		if (i >= ELF_NEEDED_MAX)
			return elf_damaged(f, "it wants versions of more than 256 libraries");
		at += U32(v, 12);
	}
	return r;
}

/* Elf64_Verdef: version, flags, index, count, hash, aux, next; the first Verdaux has the name. */
static int read_offered(struct elf_file *f, struct elf_info *e)
{
	uint64_t at;
	int r = elf_offset(f, f->verdef, &at);

	for (uint64_t i = 0; r == 0 && i < f->n_verdef; i++) {
		unsigned char v[20], a[8];

		r = elf_bytes(f, at, v, sizeof(v));
		if (r == 0)
			r = elf_bytes(f, at + U32(v, 12), a, sizeof(a));
		if (r == 0)
			r = add(f, &e->offers, &e->n_offers, U32(a, 0), NULL, false);
		if (r < 0 || !U32(v, 16))
			break;
		at += U32(v, 16);
	}
	return r;
}

int elf_read_versions(struct elf_file *f, struct elf_info *e)
{
	int r = f->verneed ? read_wanted(f, e) : 0;

	if (r == 0 && f->verdef)
		r = read_offered(f, e);
	return r;
}
