/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why execve refused a file, said so that its author can mend it: the architecture it was built
 * for, the carriage return behind its interpreter, the interpreter or loader that is missing, the
 * execute bit that got lost. Looks at the first page of the file with system calls alone; what it
 * reads is hostile and is only compared and copied.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/exec_text.h"
#include "nsbox/util.h"

static const struct {
	unsigned machine;
	const char *name;
} machines[] = {
	{ EM_X86_64, "x86_64 (amd64)" },
	{ EM_AARCH64, "aarch64 (arm64)" },
	{ EM_386, "i386" },
	{ EM_ARM, "arm" },
	{ EM_RISCV, "riscv64" },
	{ EM_PPC64, "ppc64" },
	{ EM_S390, "s390x" },
	{ EM_MIPS, "mips" },
};

const char *exec_machine_name(unsigned machine)
{
	for (unsigned i = 0; i < ARRAY_SIZE(machines); i++)
		if (machines[i].machine == machine)
			return machines[i].name;
	return "another machine";
}

static int say(struct nsbox_error *err, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int say(struct nsbox_error *err, int errnum, const char *fmt, ...)
{
	char text[NSBOX_ERROR_MSG_MAX];
	va_list ap;

	va_start(ap, fmt);
	nsbox_vformat(text, sizeof(text), fmt, ap);
	va_end(ap);
	return nsbox_fail_at(err, NSBOX_STAGE_EXECVE, NSBOX_E_EXEC, errnum, "%s", text);
}

/* The program header that names the loader, within the page we have. */
static const char *elf_loader(const unsigned char *page, size_t len)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)page;

	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_phentsize != sizeof(Elf64_Phdr))
		return NULL;
	for (unsigned i = 0; i < h->e_phnum; i++) {
		Elf64_Phdr p;
		uint64_t at = h->e_phoff + (uint64_t)i * sizeof(p);

		if (h->e_phoff > len || at + sizeof(p) > len)
			return NULL;
		memcpy(&p, page + at, sizeof(p));
		if (p.p_type == PT_INTERP && p.p_offset < len && p.p_filesz &&
		    p.p_filesz <= len - p.p_offset && !page[p.p_offset + p.p_filesz - 1])
			return (const char *)page + p.p_offset;
	}
	return NULL;
}

static int diagnose_elf(const char *path, const unsigned char *page, size_t len, int errnum,
			struct nsbox_error *err)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)page;
	const char *loader;

	if (len < sizeof(*h))
		return say(err, ENOEXEC, "run '%s': it is cut off within its ELF header", path);
	if (h->e_machine != EXEC_OWN_MACHINE)
		return say(err, ENOEXEC, "run '%s': " EXEC_WRONG_MACHINE, path,
			   exec_machine_name(h->e_machine), exec_machine_name(EXEC_OWN_MACHINE));
	loader = errnum == ENOENT ? elf_loader(page, len) : NULL;
	if (loader)
		return say(err, ENOENT, "run '%s': " EXEC_NO_LOADER, path, loader);
	return say(err, errnum, "run '%s'", path);
}

static int diagnose_script(const char *path, const char *page, size_t len, int errnum,
			   struct nsbox_error *err)
{
	char line[256];
	size_t n = strcspn(page, "\n");
	const char *p = line;

	if (n > len || n >= sizeof(line))
		n = MIN(len, sizeof(line) - 1);
	memcpy(line, page, n);
	line[n] = '\0';
	if (n && line[n - 1] == '\r')
		return say(err, errnum, "run '%s': " EXEC_CRLF, path);
	for (p += 2; *p == ' ' || *p == '\t'; p++)
		;
	line[strcspn(p, " \t") + (size_t)(p - line)] = '\0';
	if (errnum == ENOENT)
		return say(err, errnum, "run '%s': " EXEC_NO_INTERPRETER, path, p);
	return say(err, errnum, "run '%s' by its interpreter '%s'", path, p);
}

int diagnose_exec(const char *path, int errnum, struct nsbox_error *err)
{
	unsigned char page[4096] __attribute__((aligned(8))) = { 0 };
	struct stat st;
	ssize_t len;
	auto_close int fd = -1;

	if (stat(path, &st) < 0)
		return say(err, errno, "run '%s'", path);
	if (S_ISDIR(st.st_mode))
		return say(err, EACCES, "run '%s': it is a directory", path);
	if (!S_ISREG(st.st_mode))
		return say(err, EACCES, "run '%s': it is not a regular file", path);
	if (errnum == EACCES && !(st.st_mode & 0111))
		return say(err, EACCES, "run '%s': " EXEC_NOT_EXECUTABLE, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	len = fd < 0 ? 0 : read(fd, page, sizeof(page) - 1);
	if (len > 4 && !memcmp(page, ELFMAG, SELFMAG))
		return diagnose_elf(path, page, (size_t)len, errnum, err);
	if (len > 2 && page[0] == '#' && page[1] == '!')
		return diagnose_script(path, (const char *)page, (size_t)len, errnum, err);
	if (errnum == ENOEXEC)
		return say(err, ENOEXEC,
			   "run '%s': neither an ELF program nor a script with a '#!' line", path);
	return say(err, errnum, "run '%s'", path);
}
