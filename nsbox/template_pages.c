/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call writes to, of the memory that a fork shares with its template (template.h). A page that
 * is copied at its first touch costs a fault, and a call without contents has hundreds; one madvise()
 * that copies several costs a fifth of that for each. Which ones is learnt of a fork that plays a call:
 * those that are its alone by then.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nsbox/template.h"
#include "nsbox/util.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGE_PRESENT   (UINT64_C(1) << 63)
#define PAGE_OF_FILE   (UINT64_C(1) << 61)
#define PAGE_EXCLUSIVE (UINT64_C(1) << 56)

#define RANGES	1000
#define AT_ONCE 512

struct range {
	uintptr_t start, end;
};

static struct pages {
	unsigned n;
	struct range range[RANGES];
} * pages;

static long page_size(void)
{
	static long size;

	if (!size)
		size = sysconf(_SC_PAGESIZE);
	return size;
}

static void add(uintptr_t page, uintptr_t size)
{
	struct range *last = pages->n ? &pages->range[pages->n - 1] : NULL;

	if (last && last->end == page)
		last->end += size;
	else if (pages->n < RANGES)
		pages->range[pages->n++] = (struct range){ page, page + size };
}

static void look_at(int pagemap, uintptr_t start, uintptr_t end)
{
	uintptr_t size = (uintptr_t)page_size();
	uint64_t entry[AT_ONCE];

	while (start < end) {
		size_t left = (end - start) / size, n = left < AT_ONCE ? left : AT_ONCE;
		ssize_t got = pread(pagemap, entry, n * sizeof(*entry),
				    (off_t)(start / size * sizeof(*entry)));

		if (got < (ssize_t)sizeof(*entry))
			return;
		n = (size_t)got / sizeof(*entry);
		for (size_t i = 0; i < n; i++, start += size)
			if ((entry[i] & PAGE_PRESENT) && (entry[i] & PAGE_EXCLUSIVE) &&
			    !(entry[i] & PAGE_OF_FILE))
				add(start, size);
	}
}

static struct pages *map(int how)
{
	void *p = mmap(NULL, sizeof(*pages), PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void nsbox_template_expect(void)
{
	pages = map(MAP_SHARED);
}

/* No run may write what another one reads: from here on it is private. */
void nsbox_template_learnt(void)
{
	struct pages *shared = pages;

	pages = shared ? map(MAP_PRIVATE) : NULL;
	if (pages)
		memcpy(pages, shared, sizeof(*pages));
	if (shared)
		munmap(shared, sizeof(*shared));
}

/* "start-end mode ..."; false: not memory that a fork shares until one of the two writes. */
static bool written_alone(const char *line, uintptr_t *start, uintptr_t *end)
{
	char *rest;

	*start = strtoul(line, &rest, 16);
	if (*rest != '-')
		return false;
	*end = strtoul(rest + 1, &rest, 16);
	return strncmp(rest, " rw", 3) == 0 && rest[3] && rest[4] == 'p';
}

_Noreturn void nsbox_template_learn(int status)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uintptr_t start, end;
	char line[512];

	while (pages && maps && pagemap >= 0 && fgets(line, sizeof(line), maps))
		if (written_alone(line, &start, &end))
			look_at(pagemap, start, end);
	_exit(status);
}

unsigned template_pages(void)
{
	uintptr_t bytes = 0;

	for (unsigned i = 0; pages && i < pages->n; i++)
		bytes += pages->range[i].end - pages->range[i].start;
	return (unsigned)(bytes / (uintptr_t)page_size());
}

/* Nothing depends on it: a page that is not copied now is when it is touched. What the player had mapped
 * for itself is not there. */
void template_populate(void)
{
	for (unsigned i = 0; pages && i < pages->n; i++) {
		const struct range *r = &pages->range[i];

		madvise((void *)r->start, r->end - r->start, MADV_POPULATE_WRITE);
	}
}
