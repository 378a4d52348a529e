/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an ELF file. Besides crashes, reads outside and leaks: an error is told, what is
 * accepted has its strings, and the same bytes give the same answer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/skill/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_strings(const struct elf_info *e)
{
	check(e->n_needed <= ELF_NEEDED_MAX && e->n_wants <= ELF_VERSION_MAX);
	for (size_t i = 0; i < e->n_needed; i++)
		check(e->needed[i] && strlen(e->needed[i]) <= ELF_STRING_MAX);
	for (size_t i = 0; i < e->n_wants; i++)
		check(e->wants[i].file && e->wants[i].name);
	for (size_t i = 0; i < e->n_offers; i++)
		check(!e->offers[i].file && e->offers[i].name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct elf_source src = { .data = data, .fd = -1, .size = size };
	struct nsbox_error err = { 0 };
	struct elf_info a, b;
	int r = elf_read(&src, &a, &err);

	check(elf_read(&src, &b, NULL) == r);
	if (r < 0) {
		check(r == -ENOEXEC || (r == -EINVAL && err.msg[0]));
		return 0;
	}
	check_strings(&a);
	check(a.n_needed == b.n_needed && a.machine == b.machine);
	elf_done(&a);
	elf_done(&b);
	return 0;
}
