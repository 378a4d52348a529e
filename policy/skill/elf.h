/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ELF file says about itself: for which machine it is, which loader and which libraries it
 * wants. For both classes and byte orders. Nothing of it is ever run or mapped.
 *
 * The file is hostile: each offset in it is checked against its size, each count and string has a
 * limit, and there is no recursion. A file that breaks a rule is refused as a whole.
 */
#ifndef POLICY_SKILL_ELF_H
#define POLICY_SKILL_ELF_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_STRING_MAX	4095
#define ELF_NEEDED_MAX	256
#define ELF_VERSION_MAX 1024

/* Where the bytes are: in memory, or behind a descriptor (data NULL). Borrowed. */
struct elf_source {
	const void *data;
	int fd;
	uint64_t size;
};

/* A version of a library's symbols ("libc.so.6", "GLIBC_2.34"). */
struct elf_version {
	char *file; /* NULL in what a library offers */
	char *name;
	bool weak; /* its lack is no reason not to start */
};

struct elf_info {
	bool is64, is_little, is_pie;
	bool has_dynamic;
	uint16_t type, machine;			 /* ET_*, EM_* */
	char *interp, *soname, *rpath, *runpath; /* NULL: none */
	char **needed;
	size_t n_needed;
	struct elf_version *wants, *offers;
	size_t n_wants, n_offers;
};

/*
 * 0; -ENOEXEC where it is not an ELF file at all; -EINVAL where it is a damaged one (err says how,
 * without the file's name); -EIO, -ENOMEM. *ret is filled on 0 only.
 */
int elf_read(const struct elf_source *src, struct elf_info *ret, struct nsbox_error *err);
void elf_done(struct elf_info *e); /* zeroed: fine */

/* Can it be started (rather than be loaded by a program)? */
bool elf_is_program(const struct elf_info *e);

/* ---- for elf.c and elf_version.c: the dynamic section, found and checked */

struct elf_file {
	const struct elf_source *src;
	struct nsbox_error *err;
	bool is64, is_little;
	uint64_t phoff;
	unsigned phnum;
	uint64_t strtab, strsz;	  /* offset in the file */
	uint64_t verneed, verdef; /* addresses, 0: none */
	uint64_t n_verneed, n_verdef;
};

int elf_damaged(struct elf_file *f, const char *what);
int elf_bytes(struct elf_file *f, uint64_t at, void *buf, size_t len);
uint64_t elf_number(const struct elf_file *f, const unsigned char *p, unsigned width);
int elf_offset(struct elf_file *f, uint64_t addr, uint64_t *ret); /* in the file, of an address */
int elf_string(struct elf_file *f, uint64_t at, char **ret);	  /* of the string table */
int elf_read_versions(struct elf_file *f, struct elf_info *e);

#endif
