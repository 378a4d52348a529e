/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image "host": which parts of this machine a sandbox sees, and how.
 *
 * Two ways, chosen by what has to hold:
 *
 *  - Bound, read-only. What programs are made of, and what changes together with it: /usr, the
 *    directories that older layouts keep beside it, and the directories of /etc whose links point
 *    into /usr (alternatives) or must never be stale (CA certificates). A bind costs each run
 *    about 15 us, so this list is short.
 *  - Copied into the skeleton (skeleton.c), which is a layer every run shares and costs a run
 *    nothing: small configuration that changes rarely. The name of a skeleton is a hash over type,
 *    size, inode and times of every source, so a change gives a new skeleton to the next
 *    nsbox_root_prepare(). Looking at the sources of a Debian desktop takes less than a
 *    millisecond.
 *
 * Both are allowlists. Not on them, although programs read them, because people keep passwords and
 * tokens there: pip.conf, npmrc, gitconfig, wgetrc, curlrc, my.cnf, odbc.ini, maven, apt,
 * krb5.conf, ldap, php, pg_service.conf, environment. Not on them because they say which machine this is: machine-id,
 * hostname, resolv.conf, hosts, passwd. A file or directory that others may not read on the host
 * is never copied, whichever directory it is in; behind a bind its mode keeps holding, since the
 * sandbox has none of the ids that own it.
 *
 * Symbolic links are taken as they are: inside they resolve against the sandbox's own root.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "overlay/internal.h"

#define BIND_FLAGS (OPF_RDONLY | OPF_NOSUID | OPF_NODEV | OPF_RECURSIVE)

static const struct {
	const char *path; /* below "/" */
	unsigned flags;
	bool required;
	const char *why;
} bind_table[] = {
	/* clang-format off */
	{ "usr",			BIND_FLAGS,		 true,	"programs and libraries" },
	{ "etc/alternatives",		BIND_FLAGS,		 false,	"links of /usr/bin lead through it" },
	{ "etc/ssl/certs",		BIND_FLAGS,		 false,	"CA certificates (Debian); never /etc/ssl/private" },
	{ "etc/pki/ca-trust/extracted",	BIND_FLAGS,		 false,	"CA certificates (Fedora)" },
	{ "etc/pki/tls/certs",		BIND_FLAGS,		 false,	"CA certificates (Fedora)" },
	{ "sys/devices/system/cpu",	BIND_FLAGS | OPF_NOEXEC, false,	"thread pools count processors here" },
	/* clang-format on */
};

/* What distributions merge into /usr: a link is copied, a directory is bound. */
static const char *const merged_table[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };

/* Copied, files and trees alike, where they are there. A '*' may end the last component. */
static const struct {
	const char *path; /* below "/" */
	const char *why;
} copy_table[] = {
	/* clang-format off */
	{ "etc/ld.so.cache",		"dynamic linker" },
	{ "etc/ld.so.conf",		"dynamic linker" },
	{ "etc/ld.so.conf.d",		"dynamic linker" },
	{ "etc/ld-musl-*",		"dynamic linker (musl)" },
	{ "etc/ssl/openssl.cnf",	"libcrypto reads it at start" },
	{ "etc/pki/tls/cert.pem",	"link to the CA bundle (Fedora)" },
	{ "etc/pki/tls/openssl.cnf",	"libcrypto (Fedora)" },
	{ "etc/crypto-policies",	"included by openssl.cnf (Fedora)" },
	{ "etc/timezone",		"name of the zone" },
	{ "etc/locale.alias",		"setlocale" },
	{ "etc/host.conf",		"resolver" },
	{ "etc/gai.conf",		"getaddrinfo: address preference" },
	{ "etc/services",		"getservbyname" },
	{ "etc/protocols",		"getprotobyname" },
	{ "etc/networks",		"getnetbyname" },
	{ "etc/rpc",			"getrpcbyname" },
	{ "etc/ethertypes",		"packet tools" },
	{ "etc/iproute2",		"ip: names of tables and scopes" },
	{ "etc/shells",			"getusershell" },
	{ "etc/os-release",		"which distribution this is" },
	{ "etc/lsb-release",		"which distribution this is" },
	{ "etc/debian_version",		"which distribution this is" },
	{ "etc/alpine-release",		"which distribution this is" },
	{ "etc/redhat-release",		"which distribution this is" },
	{ "etc/mime.types",		"Python's mimetypes, web servers" },
	{ "etc/mailcap",		"viewers by type" },
	{ "etc/magic",			"file(1)" },
	{ "etc/magic.mime",		"file(1)" },
	{ "etc/inputrc",		"readline" },
	{ "etc/nanorc",			"nano" },
	{ "etc/vim",			"vim" },
	{ "etc/terminfo",		"terminal descriptions" },
	{ "etc/groff",			"man pages" },
	{ "etc/manpath.config",		"man pages" },
	{ "etc/papersize",		"paper size of document tools" },
	{ "etc/fonts",			"fontconfig" },
	{ "etc/matplotlibrc",		"Debian's matplotlib does not import without it" },
	{ "etc/ghostscript",		"font map of Ghostscript" },
	{ "etc/ImageMagick-*",		"policy and delegates" },
	{ "etc/libreoffice",		"start-up and registry files" },
	{ "etc/gtk-2.0",		"toolkit settings" },
	{ "etc/gtk-3.0",		"toolkit settings" },
	{ "etc/chromium.d",		"read by Debian's start script" },
	{ "etc/glvnd",			"OpenGL vendor list" },
	{ "etc/OpenCL",			"OpenCL vendor list" },
	{ "etc/openmpi",		"Open MPI defaults" },
	{ "etc/xml",			"XML catalogues" },
	{ "etc/sgml",			"SGML catalogues" },
	{ "etc/perl",			"Net::Config and friends" },
	{ "etc/python*",		"sitecustomize, runtime list" },
	{ "etc/java-*",			"the JVM's security and logging files" },
	{ "etc/java",			"JVM defaults" },
	{ "etc/.java",			"JVM system preferences" },
	{ "etc/R/Renviron",		"R does not start without it (Renviron.site may hold tokens)" },
	{ "etc/R/ldpaths",		"R does not start without it" },
	{ "etc/R/Makeconf",		"R CMD" },
	{ "etc/R/repositories",		"R package names" },
	{ "etc/octave*",		"Octave start-up files" },
	{ "etc/gdb",			"gdbinit" },
	{ "etc/emacs",			"site start-up files" },
	{ "etc/fpc*",			"Free Pascal search paths" },
	{ "etc/gnucobol",		"COBOL dialects" },
	{ "etc/odbcinst.ini",		"ODBC drivers (odbc.ini, which may name users, is not taken)" },
	/* clang-format on */
};

/* Above this something is not the small configuration the table means. */
#define SCAN_DEPTH_MAX 10
#define SCAN_COUNT_MAX 20000
#define SCAN_FILE_MAX  (UINT64_C(8) << 20)
#define SCAN_TOTAL_MAX (UINT64_C(64) << 20)

struct scan {
	struct sources *out;
	struct nsbox_error *err;
	int root_fd;
	uint64_t total;
};

/* ------------------------------------------------------------------ the list */

static void source_clear(struct source *s)
{
	free_ptr(&s->path);
	free_ptr(&s->text);
}

void sources_done(struct sources *s)
{
	for (size_t i = 0; i < s->count; i++)
		source_clear(&s->item[i]);
	free_ptr(&s->item);
	s->count = s->room = 0;
}

static int out_of_memory(struct scan *sc)
{
	return nsbox_fail(sc->err, NSBOX_E_NOMEM, ENOMEM, "list the host image's sources");
}

static int add(struct scan *sc, enum source_kind kind, const char *path, const char *text,
	       const struct stat *st, unsigned flags)
{
	struct sources *o = sc->out;
	struct source *s;

	if (o->count >= SCAN_COUNT_MAX)
		return nsbox_fail(sc->err, NSBOX_E_LIMIT, 0,
				  "host image: more than %d files to copy, at '/%s'",
				  SCAN_COUNT_MAX, path);
	if (o->count == o->room) {
		size_t room = o->room ? o->room * 2 : 128;
		struct source *item = reallocarray(o->item, room, sizeof(*item));

		if (!item)
			return out_of_memory(sc);
		o->item = item;
		o->room = room;
	}
	s = &o->item[o->count];
	*s = (struct source){ .kind = kind, .path = strdup(path), .flags = flags };
	s->text = text ? strdup(text) : NULL;
	if (!s->path || (text && !s->text)) {
		source_clear(s);
		return out_of_memory(sc);
	}
	if (st && kind != SOURCE_BIND) { /* what is bound may change as it likes */
		s->size = kind == SOURCE_DIR ? 0 : (uint64_t)st->st_size;
		s->ino = st->st_ino;
		s->mtime = st->st_mtim;
		s->ctime = st->st_ctim;
	}
	o->count++;
	return 0;
}

/* ------------------------------------------------------------------ copying: walk */

static int scan_entry(struct scan *sc, int dir_fd, const char *name, const char *path, int depth);

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static void free_names(struct dirent **names, int n)
{
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

/* Sorted, so that the order (and with it the hash) depends on names alone. */
static int scan_dir(struct scan *sc, int dir_fd, const char *name, const char *path, int depth)
{
	struct dirent **names = NULL;
	int n, r = 0;

	if (depth >= SCAN_DEPTH_MAX)
		return nsbox_fail(sc->err, NSBOX_E_LIMIT, 0, "host image: '/%s' is too deep", path);
	n = scandirat(dir_fd, name, &names, not_dots, by_name);
	if (n < 0)
		return nsbox_fail(sc->err, NSBOX_E_IO, errno, "list '/%s'", path);
	auto_close int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		r = nsbox_fail(sc->err, NSBOX_E_IO, errno, "open '/%s'", path);
	for (int i = 0; r == 0 && i < n; i++) {
		char sub[PATH_MAX];
		int len = nsbox_format(sub, sizeof(sub), "%s/%s", path, names[i]->d_name);

		if ((size_t)len != strlen(path) + 1 + strlen(names[i]->d_name))
			r = nsbox_fail(sc->err, NSBOX_E_LIMIT, ENAMETOOLONG, "'/%s'", path);
		else
			r = scan_entry(sc, fd, names[i]->d_name, sub, depth + 1);
	}
	free_names(names, n);
	return r;
}

static int scan_link(struct scan *sc, int dir_fd, const char *name, const char *path,
		     const struct stat *st)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

	if (n <= 0)
		return nsbox_fail(sc->err, NSBOX_E_IO, errno, "read the link '/%s'", path);
	target[n] = '\0';
	return add(sc, SOURCE_LINK, path, target, st, 0);
}

static int scan_file(struct scan *sc, const char *path, const struct stat *st)
{
	sc->total += (uint64_t)st->st_size;
	if ((uint64_t)st->st_size > SCAN_FILE_MAX || sc->total > SCAN_TOTAL_MAX)
		return nsbox_fail(sc->err, NSBOX_E_LIMIT, 0,
				  "host image: '/%s' is too large to be copied", path);
	return add(sc, SOURCE_FILE, path, NULL, st, 0);
}

/* One file, link or tree; sockets, devices and what others may not read are left out. */
static int scan_entry(struct scan *sc, int dir_fd, const char *name, const char *path, int depth)
{
	struct stat st;
	int r;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? 0
			       : nsbox_fail(sc->err, NSBOX_E_IO, errno, "stat '/%s'", path);
	if (S_ISLNK(st.st_mode))
		return scan_link(sc, dir_fd, name, path, &st);
	if (S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
		return scan_file(sc, path, &st);
	if (!S_ISDIR(st.st_mode) || (st.st_mode & 05) != 05)
		return 0;
	r = add(sc, SOURCE_DIR, path, NULL, &st, 0);
	return r < 0 ? r : scan_dir(sc, dir_fd, name, path, depth);
}

/* "etc/java-*": all names of etc/ that begin so. */
static int scan_pattern(struct scan *sc, const char *pattern)
{
	char dir[64], sub[PATH_MAX];
	const char *prefix = strrchr(pattern, '/') + 1;
	size_t plen = strlen(prefix) - 1;
	struct dirent **names = NULL;
	int n, r = 0;

	nsbox_format(dir, sizeof(dir), "/%s", pattern);
	*strrchr(dir, '/') = '\0';
	n = scandir(dir, &names, not_dots, by_name);
	if (n < 0)
		return errno == ENOENT ? 0
				       : nsbox_fail(sc->err, NSBOX_E_IO, errno, "list '%s'", dir);
	for (int i = 0; r == 0 && i < n; i++) {
		if (strncmp(names[i]->d_name, prefix, plen) != 0)
			continue;
		nsbox_format(sub, sizeof(sub), "%s/%s", dir + 1, names[i]->d_name);
		r = scan_entry(sc, sc->root_fd, sub, sub, 0);
	}
	free_names(names, n);
	return r;
}

static int scan_copies(struct scan *sc)
{
	for (size_t i = 0; i < ARRAY_SIZE(copy_table); i++) {
		const char *p = copy_table[i].path;
		int r = p[strlen(p) - 1] == '*' ? scan_pattern(sc, p)
						: scan_entry(sc, sc->root_fd, p, p, 0);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ------------------------------------------------------------------ the other tables */

static int scan_binds(struct scan *sc)
{
	for (size_t i = 0; i < ARRAY_SIZE(bind_table); i++) {
		const char *path = bind_table[i].path;
		char src[64];
		struct stat st;
		int r;

		nsbox_format(src, sizeof(src), "/%s", path);
		if (stat(src, &st) < 0 || !S_ISDIR(st.st_mode)) {
			if (!bind_table[i].required)
				continue;
			return nsbox_fail(sc->err, NSBOX_E_UNSUPPORTED, 0,
					  "the image 'host' needs the directory '%s'", src);
		}
		r = add(sc, SOURCE_BIND, path, src, NULL,
			bind_table[i].flags | (bind_table[i].required ? 0 : OPF_OPTIONAL));
		if (r < 0)
			return r;
	}
	return 0;
}

/* Does a link of the top directory lead to something the image has as well? */
static bool leads_inside(const char *target)
{
	size_t len;

	target += *target == '/';
	len = strcspn(target, "/");
	if (len == 3 && memcmp(target, "usr", 3) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(merged_table); i++) {
		if (len == strlen(merged_table[i]) && memcmp(target, merged_table[i], len) == 0)
			return true;
	}
	return false;
}

static int scan_merged(struct scan *sc)
{
	for (size_t i = 0; i < ARRAY_SIZE(merged_table); i++) {
		const char *name = merged_table[i];
		auto_free char *real = NULL;
		char target[PATH_MAX];
		char src[16];
		ssize_t n;
		int r;

		n = readlinkat(sc->root_fd, name, target, sizeof(target) - 1);
		if (n < 0 && errno == ENOENT)
			continue;
		target[MAX(n, 0)] = '\0';
		nsbox_format(src, sizeof(src), "/%s", name);
		if (n > 0 && leads_inside(target)) {
			r = add(sc, SOURCE_LINK, name, target, NULL, 0);
		} else {
			real = realpath(src, NULL);
			if (!real)
				return nsbox_fail(sc->err, NSBOX_E_IO, errno, "resolve '%s'", src);
			r = add(sc, SOURCE_BIND, name, real, NULL, BIND_FLAGS);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * The zone: as the link into /usr/share/zoneinfo that it mostly is, since Java, ICU and tzlocal
 * take the zone's name from the link; as a copy where it is anything else.
 */
static int scan_localtime(struct scan *sc)
{
	static const char zones[] = "/usr/share/zoneinfo/";
	auto_free char *real = realpath("/etc/localtime", NULL);
	struct stat st;

	if (!real)
		return 0; /* then the zone is UTC, inside as outside */
	if (strncmp(real, zones, sizeof(zones) - 1) == 0)
		return add(sc, SOURCE_LINK, "etc/localtime", real, NULL, 0);
	if (stat(real, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH))
		return 0;
	sc->total += (uint64_t)st.st_size;
	return add(sc, SOURCE_FILE, "etc/localtime", real, &st, 0);
}

static int add_shown(void *ctx, const char *path)
{
	return add(ctx, SOURCE_BIND, path + 1, path, NULL, BIND_FLAGS);
}

int sources_scan(const struct state_dir *state, struct sources *ret, struct nsbox_error *err)
{
	struct sources out = { 0 };
	auto_close int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct scan sc = { .out = &out, .err = err, .root_fd = root_fd };
	int r;

	if (root_fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '/'");
	r = scan_merged(&sc);
	if (r == 0)
		r = scan_binds(&sc);
	if (r == 0)
		r = host_paths_each(state, add_shown, &sc, err);
	if (r == 0)
		r = scan_localtime(&sc);
	if (r == 0)
		r = scan_copies(&sc);
	if (r < 0) {
		sources_done(&out);
		return r;
	}
	*ret = out;
	return 0;
}

void sources_hash(const struct sources *s, struct hash128 *h)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct source *e = &s->item[i];
		uint64_t meta[] = {
			e->kind,
			e->flags,
			e->size,
			e->ino,
			(uint64_t)e->mtime.tv_sec,
			(uint64_t)e->mtime.tv_nsec,
			(uint64_t)e->ctime.tv_sec,
			(uint64_t)e->ctime.tv_nsec,
		};

		hash128_add_str(h, e->path);
		hash128_add_str(h, e->text ? e->text : "");
		hash128_add(h, meta, sizeof(meta));
	}
}

int host_image_blob(const struct sources *s, const char *skeleton, void **ret, size_t *ret_len,
		    struct nsbox_error *err)
{
	struct blob_builder *b = blob_new(ROOT_MAGIC);
	int r;

	if (!b)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM,
				  "list the mounts of the image 'host'");
	blob_op(b, OP_LOWER, 0, 0, skeleton, NULL, 0);
	for (size_t i = 0; i < s->count; i++) {
		char dst[PATH_MAX];

		if (s->item[i].kind != SOURCE_BIND)
			continue;
		nsbox_format(dst, sizeof(dst), "/%s", s->item[i].path);
		blob_op(b, OP_BIND, s->item[i].flags, 0, s->item[i].text, dst, 0);
	}
	r = blob_bytes(b, ret, ret_len, err);
	blob_free(b);
	return r;
}
