/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ELF reader, on files laid out by hand: both classes and byte orders, and one wrong value at a
 * time in a file that is right without it.
 */
#include <check.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/skill/elf.h"

/*
 * header, 3 program headers (LOAD of the whole, INTERP, DYNAMIC), then at fixed places: the loader's
 * name, the dynamic section, the string table, a verneed record. Address = offset + BASE.
 */
#define BASE	  0x10000
#define AT_INTERP 0x180
#define AT_DYN	  0x200
#define AT_STR	  0x380
#define AT_NEED	  0x480
#define SIZE	  0x500

struct image {
	unsigned char b[SIZE];
	bool is64, little;
	unsigned dyn; /* entries */
};

static const char strings[] = "\0libone.so.1\0libtwo.so\0$ORIGIN/../lib\0libself.so.3\0ONE_2.0";
enum { S_ONE = 1, S_TWO = 13, S_PATH = 23, S_SELF = 38, S_VER = 51 };

static void put(struct image *m, size_t at, uint64_t v, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		m->b[at + (m->little ? i : width - 1 - i)] = (unsigned char)(v >> (8 * i));
}

static size_t phdr(const struct image *m, unsigned i)
{
	return m->is64 ? 64 + 56U * i : 52 + 32U * i;
}

static void segment(struct image *m, unsigned i, uint32_t type, uint64_t offset, uint64_t size)
{
	size_t p = phdr(m, i);
	unsigned w = m->is64 ? 8 : 4;

	put(m, p, type, 4);
	put(m, p + (m->is64 ? 8 : 4), offset, w);
	put(m, p + (m->is64 ? 16 : 8), BASE + offset, w);
	put(m, p + (m->is64 ? 32 : 16), size, w);
}

static void dynamic(struct image *m, uint64_t tag, uint64_t val)
{
	unsigned w = m->is64 ? 8 : 4;
	size_t p = AT_DYN + (size_t)m->dyn++ * 2 * w;

	put(m, p, tag, w);
	put(m, p + w, val, w);
}

static struct image build(bool is64, bool little, unsigned machine)
{
	struct image m = { .is64 = is64, .little = little };

	memcpy(m.b, ELFMAG, SELFMAG);
	m.b[EI_CLASS] = is64 ? ELFCLASS64 : ELFCLASS32;
	m.b[EI_DATA] = little ? ELFDATA2LSB : ELFDATA2MSB;
	put(&m, 16, ET_DYN, 2);
	put(&m, 18, machine, 2);
	put(&m, is64 ? 32 : 28, is64 ? 64 : 52, is64 ? 8 : 4); /* e_phoff */
	put(&m, is64 ? 54 : 42, is64 ? 56 : 32, 2);	       /* e_phentsize */
	put(&m, is64 ? 56 : 44, 3, 2);
	segment(&m, 0, PT_LOAD, 0, SIZE);
	segment(&m, 1, PT_INTERP, AT_INTERP, 10);
	segment(&m, 2, PT_DYNAMIC, AT_DYN, 0x100);
	memcpy(m.b + AT_INTERP, "/lib/ld.so", 10);
	put(&m, phdr(&m, 1) + (is64 ? 32 : 16), 11, is64 ? 8 : 4);
	memcpy(m.b + AT_STR, strings, sizeof(strings));
	dynamic(&m, DT_NEEDED, S_ONE);
	dynamic(&m, DT_NEEDED, S_TWO);
	dynamic(&m, DT_SONAME, S_SELF);
	dynamic(&m, DT_RUNPATH, S_PATH);
	dynamic(&m, DT_STRTAB, BASE + AT_STR);
	dynamic(&m, DT_STRSZ, sizeof(strings));
	dynamic(&m, DT_VERNEED, BASE + AT_NEED);
	dynamic(&m, DT_VERNEEDNUM, 1);
	put(&m, AT_NEED, 1, 2);	    /* vn_version */
	put(&m, AT_NEED + 2, 1, 2); /* vn_cnt */
	put(&m, AT_NEED + 4, S_ONE, 4);
	put(&m, AT_NEED + 8, 16, 4); /* vn_aux */
	put(&m, AT_NEED + 16 + 8, S_VER, 4);
	return m;
}

static int read_image(const struct image *m, size_t size, struct elf_info *e,
		      struct nsbox_error *err)
{
	const struct elf_source src = { .data = m->b, .fd = -1, .size = size };

	return elf_read(&src, e, err);
}

static const struct {
	bool is64, little;
	unsigned machine;
} kinds[] = {
	{ true, true, EM_X86_64 }, { true, true, EM_AARCH64 }, { true, false, EM_S390 },
	{ false, true, EM_386 },   { false, false, EM_PPC },
};

START_TEST(every_class_and_order)
{
	struct image m = build(kinds[_i].is64, kinds[_i].little, kinds[_i].machine);
	struct nsbox_error err = { 0 };
	struct elf_info e;

	ck_assert_msg(read_image(&m, SIZE, &e, &err) == 0, "%s", err.msg);
	ck_assert_uint_eq(e.machine, kinds[_i].machine);
	ck_assert_uint_eq(e.type, ET_DYN);
	ck_assert(e.is64 == kinds[_i].is64 && e.is_little == kinds[_i].little);
	ck_assert(elf_is_program(&e));
	ck_assert_str_eq(e.interp, "/lib/ld.so");
	ck_assert_uint_eq(e.n_needed, 2);
	ck_assert_str_eq(e.needed[0], "libone.so.1");
	ck_assert_str_eq(e.needed[1], "libtwo.so");
	ck_assert_str_eq(e.soname, "libself.so.3");
	ck_assert_str_eq(e.runpath, "$ORIGIN/../lib");
	ck_assert_ptr_null(e.rpath);
	ck_assert_uint_eq(e.n_wants, 1);
	ck_assert_str_eq(e.wants[0].file, "libone.so.1");
	ck_assert_str_eq(e.wants[0].name, "ONE_2.0");
	elf_done(&e);
	elf_done(&e);
}
END_TEST

START_TEST(other_files_are_not_elf)
{
	static const char *const texts[] = { "", "#!/bin/sh\necho hello there\n", "\177EL",
					     "MZ and more than sixteen bytes" };
	const struct elf_source src = { .data = texts[_i], .fd = -1, .size = strlen(texts[_i]) };
	struct elf_info e;

	ck_assert_int_eq(elf_read(&src, &e, NULL), -ENOEXEC);
}
END_TEST

/* Wherever it is cut, it is refused or whole up to there; nothing is read behind the end. */
START_TEST(any_length)
{
	const struct image m = build(true, true, EM_X86_64);

	for (size_t n = 0; n <= SIZE; n++) {
		auto_free unsigned char *copy = malloc(n + 1);
		const struct elf_source src = { .data = copy, .fd = -1, .size = n };
		struct nsbox_error err = { 0 };
		struct elf_info e;
		int r;

		memcpy(copy, m.b, n);
		r = elf_read(&src, &e, &err);
		if (r == 0)
			elf_done(&e);
		else
			ck_assert(r == -ENOEXEC || (r == -EINVAL && err.msg[0]));
	}
}
END_TEST

static const struct {
	const char *what;
	size_t at;
	unsigned width;
	uint64_t value;
	const char *says;
} damages[] = {
	{ "class", EI_CLASS, 1, 7, "class" },
	{ "byte order", EI_DATA, 1, 0, "byte order" },
	{ "program headers behind the end", 32, 8, SIZE, "cut off" },
	{ "program headers that wrap", 32, 8, UINT64_MAX - 10, "outside" },
	{ "size of a program header", 54, 2, 55, "wrong size" },
	{ "count of program headers", 56, 2, 0xffff, "more than 256" },
	{ "loader's name behind the end", 64 + 56 + 8, 8, SIZE - 2, "outside" },
	{ "loader's name of all sizes", 64 + 56 + 32, 8, UINT64_MAX, "outside" },
	{ "loader's name without an end", 64 + 56 + 32, 8, 10, "does not end" },
	{ "dynamic section behind the end", 64 + 112 + 8, 8, SIZE, "cut off" },
	{ "dynamic section too long", 64 + 112 + 32, 8, UINT64_MAX, "too long" },
	{ "needed outside the string table", AT_DYN + 8, 8, 4000, "outside the string table" },
	{ "string table at no segment", AT_DYN + 4 * 16 + 8, 8, 0x999999, "no segment" },
	{ "string table past the end", AT_DYN + 5 * 16 + 8, 8, SIZE, "string table" },
	{ "string table that is huge", AT_DYN + 5 * 16 + 8, 8, UINT64_MAX, "string table" },
	{ "versions at no segment", AT_DYN + 6 * 16 + 8, 8, 3, "no segment" },
	{ "version record far away", AT_NEED + 8, 4, 0xffffffff, "cut off" },
	{ "version's library", AT_NEED + 4, 4, 4000, "outside the string table" },
};

START_TEST(one_wrong_value)
{
	struct image m = build(true, true, EM_X86_64);
	struct nsbox_error err = { 0 };
	struct elf_info e = { 0 };

	put(&m, damages[_i].at, damages[_i].value, damages[_i].width);
	ck_assert_msg(read_image(&m, SIZE, &e, &err) == -EINVAL, "%s is accepted",
		      damages[_i].what);
	ck_assert_msg(strstr(err.msg, damages[_i].says) != NULL, "%s: '%s'", damages[_i].what,
		      err.msg);
}
END_TEST

/* A chain that points to itself ends with its count. */
START_TEST(a_chain_without_an_end)
{
	struct image m = build(true, true, EM_X86_64);
	struct nsbox_error err = { 0 };
	struct elf_info e;

	put(&m, AT_NEED + 2, 0xffff, 2);
	put(&m, AT_NEED + 16 + 12, 0, 4); /* no next: ends at once */
	ck_assert_int_eq(read_image(&m, SIZE, &e, &err), 0);
	elf_done(&e);
	put(&m, AT_NEED + 16 + 12, 1, 4); /* overlapping records, one byte further each */
	ck_assert_int_eq(read_image(&m, SIZE, &e, &err), -EINVAL);
}
END_TEST

START_TEST(libraries_are_no_programs)
{
	struct image m = build(true, true, EM_X86_64);
	struct nsbox_error err = { 0 };
	struct elf_info e;

	put(&m, phdr(&m, 1), PT_NULL, 4);
	ck_assert_int_eq(read_image(&m, SIZE, &e, &err), 0);
	ck_assert(!elf_is_program(&e));
	elf_done(&e);
	dynamic(&m, DT_FLAGS_1, DF_1_PIE); /* a static one that may lie anywhere */
	ck_assert_int_eq(read_image(&m, SIZE, &e, &err), 0);
	ck_assert(elf_is_program(&e));
	elf_done(&e);
}
END_TEST

/* The same from a descriptor: this very program. */
START_TEST(from_a_descriptor)
{
	auto_close int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct elf_source src = { .fd = fd, .size = (uint64_t)lseek(fd, 0, SEEK_END) };
	struct nsbox_error err = { 0 };
	struct elf_info e;
	bool has_libc = false;

	ck_assert_msg(elf_read(&src, &e, &err) == 0, "%s", err.msg);
	for (size_t i = 0; i < e.n_needed; i++)
		has_libc |= !strncmp(e.needed[i], "libc.so", 7);
	ck_assert(has_libc && elf_is_program(&e) && e.interp);
	elf_done(&e);
	src.size += 4096; /* a file that became shorter meanwhile */
	ck_assert_int_eq(elf_read(&src, &e, &err), 0);
	elf_done(&e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("elf");
	TCase *tc = tcase_create("elf");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, every_class_and_order, 0, (int)ARRAY_SIZE(kinds));
	tcase_add_loop_test(tc, other_files_are_not_elf, 0, 4);
	tcase_add_test(tc, any_length);
	tcase_add_loop_test(tc, one_wrong_value, 0, (int)ARRAY_SIZE(damages));
	tcase_add_test(tc, a_chain_without_an_end);
	tcase_add_test(tc, libraries_are_no_programs);
	tcase_add_test(tc, from_a_descriptor);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
