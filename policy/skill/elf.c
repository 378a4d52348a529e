/* SPDX-License-Identifier: Apache-2.0 */
/* ELF header, program headers, dynamic section; see elf.h. */
#include "policy/skill/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "nsbox/util.h"

#define PROGRAM_HEADERS_MAX 256
#define DYNAMIC_MAX	    4096 /* entries */

/* Where the fields are, by class: offset in the 32-bit layout, offset in the 64-bit one. */
/* clang-format off */
struct place { uint8_t at[2], width[2]; };
static const struct place
	E_TYPE      = { { 16, 16 }, { 2, 2 } },
	E_MACHINE   = { { 18, 18 }, { 2, 2 } },
	E_PHOFF     = { { 28, 32 }, { 4, 8 } },
	E_PHENTSIZE = { { 42, 54 }, { 2, 2 } },
	E_PHNUM     = { { 44, 56 }, { 2, 2 } },
	P_TYPE      = { {  0,  0 }, { 4, 4 } },
	P_OFFSET    = { {  4,  8 }, { 4, 8 } },
	P_VADDR     = { {  8, 16 }, { 4, 8 } },
	P_FILESZ    = { { 16, 32 }, { 4, 8 } },
	D_TAG       = { {  0,  0 }, { 4, 8 } },
	D_VAL       = { {  4,  8 }, { 4, 8 } };
/* clang-format on */

static const uint8_t ehdr_size[2] = { 52, 64 };
static const uint8_t phdr_size[2] = { 32, 56 };
static const uint8_t dyn_size[2] = { 8, 16 };

/* ------------------------------------------------------------------ bytes */

int elf_damaged(struct elf_file *f, const char *what)
{
	return nsbox_fail(f->err, NSBOX_E_INVALID, 0, "%s", what);
}

int elf_bytes(struct elf_file *f, uint64_t at, void *buf, size_t len)
{
	const struct elf_source *s = f->src;
	size_t done = 0;

	if (at > s->size || len > s->size - at)
		return elf_damaged(f, "it is cut off, or points behind its end");
	if (s->data) {
		memcpy(buf, (const char *)s->data + at, len);
		return 0;
	}
	while (done < len) {
		ssize_t n = pread(s->fd, (char *)buf + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			nsbox_fail(f->err, NSBOX_E_IO, n < 0 ? errno : ENODATA, "read");
			return -EIO;
		}
		done += (size_t)n;
	}
	return 0;
}

uint64_t elf_number(const struct elf_file *f, const unsigned char *p, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < width; i++)
		v |= (uint64_t)p[f->is_little ? i : width - 1 - i] << (8 * i);
	return v;
}

static uint64_t field(const struct elf_file *f, const unsigned char *base, struct place p)
{
	return elf_number(f, base + p.at[f->is64], p.width[f->is64]);
}

static int program_header(struct elf_file *f, unsigned i, unsigned char *buf)
{
	return elf_bytes(f, f->phoff + (uint64_t)i * phdr_size[f->is64], buf, phdr_size[f->is64]);
}

int elf_offset(struct elf_file *f, uint64_t addr, uint64_t *ret)
{
	unsigned char p[64];

	for (unsigned i = 0; i < f->phnum; i++) {
		int r = program_header(f, i, p);
		uint64_t from, size;

		if (r < 0)
			return r;
		from = field(f, p, P_VADDR);
		size = field(f, p, P_FILESZ);
		if (field(f, p, P_TYPE) != PT_LOAD || addr < from || addr - from >= size)
			continue;
		if (field(f, p, P_OFFSET) > f->src->size)
			break;
		*ret = field(f, p, P_OFFSET) + (addr - from);
		return 0;
	}
	return elf_damaged(f, "its dynamic section points to an address that no segment holds");
}

/* A NUL-terminated string that starts at `at` and ends before `end` (offsets in the file). */
static int text_at(struct elf_file *f, uint64_t at, uint64_t end, char **ret)
{
	char buf[ELF_STRING_MAX + 1];
	size_t len;
	int r;

	if (end > f->src->size || at >= end)
		return elf_damaged(f, "a string of it is outside the file");
	len = (size_t)MIN(end - at, (uint64_t)sizeof(buf));
	r = elf_bytes(f, at, buf, len);
	if (r < 0)
		return r;
	if (!memchr(buf, 0, len))
		return elf_damaged(f, "a string of it does not end");
	free(*ret);
	*ret = strdup(buf);
	return *ret ? 0 : nsbox_fail(f->err, NSBOX_E_NOMEM, ENOMEM, "read an ELF file");
}

int elf_string(struct elf_file *f, uint64_t at, char **ret)
{
	if (at >= f->strsz)
		return elf_damaged(f, "a string of it is outside the string table");
	return text_at(f, f->strtab + at, f->strtab + f->strsz, ret);
}

/* ------------------------------------------------------------------ the dynamic section */

static int add_needed(struct elf_file *f, struct elf_info *e, uint64_t at)
{
	if (e->n_needed >= ELF_NEEDED_MAX)
		return elf_damaged(f, "it needs more than 256 libraries");
	if (!e->needed)
		e->needed = calloc(ELF_NEEDED_MAX, sizeof(*e->needed));
	if (!e->needed)
		return nsbox_fail(f->err, NSBOX_E_NOMEM, ENOMEM, "read an ELF file");
	return elf_string(f, at, &e->needed[e->n_needed++]);
}

/* First pass: where the strings are; second: what they say. */
static int take_entry(struct elf_file *f, struct elf_info *e, uint64_t tag, uint64_t val,
		      bool strings)
{
	if (!strings) {
		switch (tag) {
		case DT_STRTAB: f->strtab = val; break;
		case DT_STRSZ: f->strsz = val; break;
		case DT_VERNEED: f->verneed = val; break;
		case DT_VERNEEDNUM: f->n_verneed = val; break;
		case DT_VERDEF: f->verdef = val; break;
		case DT_VERDEFNUM: f->n_verdef = val; break;
		case DT_FLAGS_1: e->is_pie = val & DF_1_PIE; break;
		default: break;
		}
		return 0;
	}
	switch (tag) {
	case DT_NEEDED: return add_needed(f, e, val);
	case DT_SONAME: return elf_string(f, val, &e->soname);
	case DT_RPATH: return elf_string(f, val, &e->rpath);
	case DT_RUNPATH: return elf_string(f, val, &e->runpath);
	default: return 0;
	}
}

static int walk_dynamic(struct elf_file *f, struct elf_info *e, uint64_t at, uint64_t size,
			bool strings)
{
	unsigned step = dyn_size[f->is64];

	if (size / step > DYNAMIC_MAX)
		return elf_damaged(f, "its dynamic section is too long");
	for (uint64_t i = 0; i + step <= size; i += step) {
		unsigned char d[16];
		int r = elf_bytes(f, at + i, d, step);

		if (r < 0)
			return r;
		if (field(f, d, D_TAG) == DT_NULL)
			break;
		r = take_entry(f, e, field(f, d, D_TAG), field(f, d, D_VAL), strings);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_dynamic(struct elf_file *f, struct elf_info *e, uint64_t at, uint64_t size)
{
	int r = walk_dynamic(f, e, at, size, false);

	if (r < 0)
		return r;
	e->has_dynamic = true;
	if (!f->strtab)
		return 0;
	r = elf_offset(f, f->strtab, &f->strtab);
	if (r < 0)
		return r;
	if (f->strsz > f->src->size - MIN(f->strtab, f->src->size))
		return elf_damaged(f, "its string table goes past its end");
	r = walk_dynamic(f, e, at, size, true);
	return r < 0 ? r : elf_read_versions(f, e);
}

/* ------------------------------------------------------------------ the headers */

static int read_segments(struct elf_file *f, struct elf_info *e)
{
	uint64_t dyn_at = 0, dyn_size_ = 0;
	unsigned char p[64];

	for (unsigned i = 0; i < f->phnum; i++) {
		uint64_t at, size;
		int r = program_header(f, i, p);

		if (r < 0)
			return r;
		at = field(f, p, P_OFFSET);
		size = field(f, p, P_FILESZ);
		if (field(f, p, P_TYPE) == PT_DYNAMIC) {
			dyn_at = at;
			dyn_size_ = size;
		}
		if (field(f, p, P_TYPE) != PT_INTERP)
			continue;
		if (at > f->src->size || size > f->src->size - at)
			return elf_damaged(f, "the name of its loader is outside the file");
		r = text_at(f, at, at + size, &e->interp);
		if (r < 0)
			return r;
	}
	return dyn_size_ ? read_dynamic(f, e, dyn_at, dyn_size_) : 0;
}

static int read_headers(struct elf_file *f, struct elf_info *e)
{
	unsigned char h[64] = { 0 };
	int r = elf_bytes(f, 0, h, EI_NIDENT);

	if (r < 0)
		return r;
	if (h[EI_CLASS] != ELFCLASS32 && h[EI_CLASS] != ELFCLASS64)
		return elf_damaged(f, "its class is neither 32-bit nor 64-bit");
	if (h[EI_DATA] != ELFDATA2LSB && h[EI_DATA] != ELFDATA2MSB)
		return elf_damaged(f, "its byte order is not known");
	f->is64 = e->is64 = h[EI_CLASS] == ELFCLASS64;
	f->is_little = e->is_little = h[EI_DATA] == ELFDATA2LSB;
	r = elf_bytes(f, 0, h, ehdr_size[f->is64]);
	if (r < 0)
		return r;
	e->type = (uint16_t)field(f, h, E_TYPE);
	e->machine = (uint16_t)field(f, h, E_MACHINE);
	f->phoff = field(f, h, E_PHOFF);
	f->phnum = (unsigned)field(f, h, E_PHNUM);
	if (!f->phnum) /* an object file */
		return 0;
	if (f->phnum > PROGRAM_HEADERS_MAX)
		return elf_damaged(f, "it has more than 256 program headers");
	if (field(f, h, E_PHENTSIZE) != phdr_size[f->is64])
		return elf_damaged(f, "its program headers have a wrong size");
	if (f->phoff > f->src->size) /* so that sums of it do not wrap */
		return elf_damaged(f, "its program headers are outside the file");
	return read_segments(f, e);
}

int elf_read(const struct elf_source *src, struct elf_info *ret, struct nsbox_error *err)
{
	struct nsbox_error own = { 0 };
	struct elf_file f = { .src = src, .err = err ? err : &own };
	struct elf_info e = { 0 };
	unsigned char magic[SELFMAG];
	int r;

	if (src->size < EI_NIDENT)
		return -ENOEXEC;
	r = elf_bytes(&f, 0, magic, sizeof(magic));
	if (r < 0)
		return r;
	if (memcmp(magic, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	r = read_headers(&f, &e);
	if (r < 0) {
		elf_done(&e);
		return r;
	}
	*ret = e;
	return 0;
}

bool elf_is_program(const struct elf_info *e)
{
	return e->type == ET_EXEC || (e->type == ET_DYN && (e->interp || e->is_pie));
}

static void free_versions(struct elf_version *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(v[i].file);
		free(v[i].name);
	}
	free(v);
}

void elf_done(struct elf_info *e)
{
	for (size_t i = 0; i < e->n_needed; i++)
		free(e->needed[i]);
	free(e->needed);
	free_versions(e->wants, e->n_wants);
	free_versions(e->offers, e->n_offers);
	free(e->interp);
	free(e->soname);
	free(e->rpath);
	free(e->runpath);
	memset(e, 0, sizeof(*e));
}
