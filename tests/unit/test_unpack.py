#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nsbox-unpack: good archives byte by byte, hostile ones refused as a whole and by name. Each
refusal has a twin, the same archive without the bad entry, which is accepted."""

import io
import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

warnings.simplefilter("ignore")  # zipfile warns of the duplicates that are made on purpose
UNPACK = os.path.join(paths.BUILD, "nsbox-unpack")
MAGIC = 0x316D7266
END, DIR, FILE, LINK, NOTE = 1, 2, 3, 4, 6
HEADER = struct.Struct("<IHHIIQ")


def frames(stream):
    """The frames of a stream; an exception where it is not well-formed to its last byte."""
    at, out = 0, []
    while at < len(stream):
        magic, kind, path_len, mode, aux, size = HEADER.unpack_from(stream, at)
        at += HEADER.size
        if magic != MAGIC or (out and out[-1][0] == END):
            raise ValueError("no frame at %d" % at)
        path, content = stream[at:at + path_len], stream[at + path_len:at + path_len + size]
        if len(content) != size:
            raise ValueError("cut frame")
        at += path_len + size
        out.append((kind, path, mode, aux, content))
    if not out or out[-1][0] != END:
        raise ValueError("no end")
    return out


def unpack(archive, *options):
    """Exit status, frames without END, END's code and text."""
    p = subprocess.run([UNPACK, *options], input=archive, capture_output=True, timeout=60, check=False)
    got = frames(p.stdout)
    return p.returncode, got[:-1], got[-1][3], got[-1][4].decode("utf-8", "replace")


# ---------------------------------------------------------------- making archives

def entry(name, content=b"content", mode=0o644, kind=stat.S_IFREG):
    return (name, content, kind | mode)


def link(name, target):
    return entry(name, target, 0o777, stat.S_IFLNK)


GOOD = entry("good/file.txt", b"good\n")


def make_zip(entries, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, content, mode in entries:
            info = zipfile.ZipInfo("x")
            info.filename = name if isinstance(name, str) else name.decode("latin-1")
            info.external_attr = mode << 16
            info.create_system = 3
            info.compress_type = method
            z.writestr(info, content)
    return out.getvalue()


TAR_TYPES = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE,
             stat.S_IFIFO: tarfile.FIFOTYPE, stat.S_IFCHR: tarfile.CHRTYPE, stat.S_IFBLK: tarfile.BLKTYPE}


def make_tar(entries, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as t:
        for name, content, bits in entries:
            info = tarfile.TarInfo(name)
            info.mode = stat.S_IMODE(bits)
            info.type = tarfile.LNKTYPE if bits < 0o10000 else TAR_TYPES[stat.S_IFMT(bits)]
            if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = content
            elif info.type == tarfile.REGTYPE:
                info.size = len(content)
            t.addfile(info, io.BytesIO(content) if info.type == tarfile.REGTYPE else None)
    return out.getvalue()


# ---------------------------------------------------------------- good ones

def tree():
    big = bytes(random.Random(1).randrange(256) for _ in range(200000))
    return [entry("demo/", b"", 0o755, stat.S_IFDIR), entry("demo/run.sh", b"#!/bin/sh\n", 0o755),
            entry("demo/data", big), entry("demo/empty", b""), entry("demo/set-id", b"x", 0o6777),
            entry("中文/文件.txt", "内容".encode()), link("demo/link", "data")]


TREE = [(DIR, "demo", 0o755, b""), (FILE, "demo/run.sh", 0o755, b"#!/bin/sh\n"), (FILE, "demo/data", 0o644, None),
        (FILE, "demo/empty", 0o644, b""), (FILE, "demo/set-id", 0o755, b"x"),
        (FILE, "中文/文件.txt", 0o644, "内容".encode()), (LINK, "demo/link", 0, b"data")]


def zstd(data):
    return subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout


def test_good(t):
    entries = tree()
    want = [(k, p.encode(), m, 0, entries[2][1] if c is None else c) for k, p, m, c in TREE]
    makers = [("deflated zip", lambda: make_zip(entries)), ("stored zip", lambda: make_zip(entries, zipfile.ZIP_STORED)),
              ("tar", lambda: make_tar(entries)), ("tar.gz", lambda: make_tar(entries, "w:gz")),
              ("tar.bz2", lambda: make_tar(entries, "w:bz2")), ("tar.xz", lambda: make_tar(entries, "w:xz"))]
    for name, make in makers:
        status, got, code, text = unpack(make())
        t.ok(status == 0 and code == 0 and got == want, "%s: every byte, mode and name" % name, text)
    try:
        packed = zstd(make_tar(entries))
    except FileNotFoundError:
        if tap.must_work():
            t.ok(False, "zstd is needed for tar.zst")
    else:
        t.equal(unpack(packed), (0, want, 0, ""), "tar.zst: every byte, mode and name")


def names(archive):
    status, got, _, text = unpack(archive)
    return [f[1].decode() for f in got] if status == 0 else text


def test_good_shapes(t):
    t.equal(names(make_tar([entry("./", b"", 0o755, stat.S_IFDIR), entry("./a/b")])), ["a/b"], "'./' in front is nothing")
    t.equal(names(make_zip([GOOD, entry("__MACOSX/good/._file.txt"), entry("__MACOSXY")])), ["good/file.txt", "__MACOSXY"],
            "macOS clutter is left out, and nothing that only looks like it")
    inner = make_zip([GOOD], zipfile.ZIP_STORED)
    t.equal(names(make_zip([entry("inner.zip", inner)], zipfile.ZIP_STORED)), ["inner.zip"], "a zip stored in a zip is a file")
    t.equal(names(make_zip([entry("d/", b"", 0o755, stat.S_IFDIR)] * 2)), ["d", "d"], "a directory may come twice")
    t.equal(names(make_zip([entry("A"), entry("a")])), ["A", "a"], "upper and lower case are different names")
    t.equal(names(make_zip([])), [], "an empty zip has no files")
    out = io.BytesIO()
    with zipfile.ZipFile(Unseekable(out), "w") as z:
        z.writestr("streamed", b"later")
    t.equal(names(out.getvalue()), ["streamed"], "sizes that follow the data are fine")


class Unseekable(io.RawIOBase):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def writable(self):
        return True

    def write(self, data):
        return self.out.write(data)


# ---------------------------------------------------------------- other systems' archives

def with_name(raw, extra=b"", content=b"x", system=0):
    """A zip as Windows writes it: a name in some code page, and no mark of which."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        info = zipfile.ZipInfo("@" * len(raw))
        info.create_system, info.extra, info.compress_type = system, extra, zipfile.ZIP_DEFLATED
        z.writestr(info, content)
    return out.getvalue().replace(b"@" * len(raw), raw)


def unicode_extra(raw, name):
    data = b"\1" + struct.pack("<I", zlib.crc32(raw)) + name.encode()
    return struct.pack("<HH", 0x7075, len(data)) + data


def test_code_pages(t):
    for name in ("报告/第一章.txt", "数据.csv", "a中b文c", "镕基（一）.txt"):
        t.equal(names(with_name(name.encode("gbk"))), [name], "GBK: " + name)
    for name in ("résumé.txt", "niños/año.txt", "Übergröße.txt", "smørrebrød", "π≈3½"):
        try:
            raw = name.encode("cp437")
        except UnicodeEncodeError:
            continue
        t.equal(names(with_name(raw)), [name], "code page 437: " + name)
    t.equal(names(with_name("中文.txt".encode())), ["中文.txt"], "UTF-8 without its flag")
    gbk, dos = "中文.txt".encode("gbk"), "é.txt".encode("cp437")
    t.equal(names(with_name(gbk, unicode_extra(gbk, "中文.txt"))), ["中文.txt"], "GBK with its Unicode name beside it")
    t.equal(names(with_name(dos, unicode_extra(dos, "é.txt"))), ["é.txt"], "code page 437 with its Unicode name beside it")
    for raw, other in ((gbk, "别的.txt"), (dos, "e.txt"), (dos, "../é.txt")):
        t.equal(unpack(with_name(raw, unicode_extra(raw, other)))[0], 1, "another Unicode name is refused: " + other)
    for raw in (b"\x81", b"a\xff", b"\xb0", b"\xb0\x3f"):
        t.equal(unpack(with_name(raw))[0], 0, "%r is code page 437" % raw)
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as z:
        z.writestr("中文", b"1")
        z.writestr("@@@@", b"2")
    t.equal(unpack(twice.getvalue().replace(b"@@@@", "中文".encode("gbk")))[0], 1, "one name in two encodings is the same name")


def modes(archive):
    status, got, _, text = unpack(archive)
    return [(f[2], f[0]) for f in got] if status == 0 else text


def test_scripts(t):
    elf, script, crlf = b"\x7fELF" + bytes(60), b"#!/bin/sh\necho\n", b"#!/bin/sh\r\necho\r\n"
    for content, mode in ((elf, 0o755), (script, 0o755), (b"text", 0o644), (b"", 0o644)):
        t.equal(modes(with_name(b"file.bin", content=content)), [(mode, FILE)], "no modes in the zip: %r is %o" % (content[:4], mode))
        t.equal(modes(make_zip([entry("f", content)])), [(0o644, FILE)], "modes in the zip count")
    for make in (make_zip, make_tar):
        t.equal(modes(make([entry("f", crlf, 0o755)])), [(0o755, FILE), (0, NOTE)], make.__name__[5:] + ": a CRLF script is noticed")
        t.equal(modes(make([entry("f", script, 0o755)])), [(0o755, FILE)], make.__name__[5:] + ": others are not")
    t.equal(modes(make_zip([entry("f", b"text\r\n")])), [(0o644, FILE)], "nor is text with CRLF")
    note = unpack(make_zip([entry("f", crlf)]))[1][-1]
    t.ok(note[1] == b"f" and b"CR LF" in note[4], "the notice names the file and the reason")


# ---------------------------------------------------------------- hostile entries

LONG_PART = "p" * 256
LONG_PATH = "/".join(["d" * 200] * 21)
BAD_NAMES = ["../escape.txt", "a/../../escape.txt", "/abs/escape.txt", "a/../escape.txt", "..", "a/..", "a//escape",
             "a/./escape", "C:\\escape", "C:escape", "a\\escape", "..\\escape", "a/esc\x01ape", "a/esc\x7fape",
             "a/esc\nape", LONG_PART, LONG_PATH]

# name in the message, entries that make it bad
BAD_BOTH = [
    ("twice.txt", [entry("twice.txt"), entry("twice.txt")]),
    ("file/below", [entry("file"), entry("file/below")]),
    ("way/through", [link("way", "good"), entry("way/through")]),
    ("way", [entry("way/x"), link("way", "good")]),
    ("outside", [link("outside", "../x")]),
    ("deep/outside", [link("deep/outside", "a/../../../x")]),
    ("absolute", [link("absolute", "/etc/passwd")]),
    ("pipe", [entry("pipe", b"", 0o644, stat.S_IFIFO)]),
    ("device", [entry("device", b"", 0o644, stat.S_IFCHR)]),
    ("disk", [entry("disk", b"", 0o644, stat.S_IFBLK)]),
]


def shown(name):
    """How a message shows the end of a name."""
    return "".join("?" if ord(c) < 32 or ord(c) == 127 else c for c in name)[-100:]


def refused(t, what, archive, name, twin, *options):
    status, _, code, text = unpack(archive, *options)
    good = status == 1 and code != 0 and shown(name) in text
    twin_status = unpack(twin, *options)[0]
    t.ok(good and twin_status == 0, "%s is refused, its twin is not" % what,
         "status %d, code %d, text %r, twin %d" % (status, code, text, twin_status))


def test_names(t):
    for make in (make_zip, make_tar):
        for name in BAD_NAMES:
            refused(t, "%s with %r" % (make.__name__[5:], name[:40]), make([GOOD, entry(name)]),
                    name.rstrip("/"), make([GOOD]))


def test_entries(t):
    for make in (make_zip, make_tar):
        for name, bad in BAD_BOTH:
            refused(t, "%s: %s" % (make.__name__[5:], name), make([GOOD] + bad), name, make([GOOD]))
    refused(t, "tar: a hard link to the outside", make_tar([GOOD, ("hard", "/etc/passwd", 0o644)]), "hard", make_tar([GOOD]))
    refused(t, "tar: a hard link", make_tar([GOOD, ("hard", "good/file.txt", 0o644)]), "hard", make_tar([GOOD]))


# ---------------------------------------------------------------- zip files with two readings

class Zip:
    """The offsets of a zip of two entries, and ways to bend it."""

    def __init__(self):
        self.data = bytearray(make_zip([GOOD, entry("victim.txt", b"victim " * 20)]))
        self.end = self.data.rindex(b"PK\5\6")
        self.central = self.data.rindex(b"PK\1\2")
        self.local = struct.unpack_from("<I", self.data, self.central + 42)[0]

    def put16(self, at, value):
        struct.pack_into("<H", self.data, at, value)

    def put32(self, at, value):
        struct.pack_into("<I", self.data, at, value)

    def both16(self, local, value):
        self.put16(self.local + local, value)
        self.put16(self.central + local + 2, value)

    def insert(self, at, more):
        """Bytes before the directory; its place in the end record moves, offsets do not."""
        self.data[at:at] = more
        self.end += len(more)
        self.put32(self.end + 16, struct.unpack_from("<I", self.data, self.end + 16)[0] + len(more))


def local_name(z):
    z.data[z.local + 30] ^= 1


def local_sizes(z):
    z.put32(z.local + 22, 5)


def local_crc(z):
    z.put32(z.local + 14, 5)


def local_method(z):
    z.put16(z.local + 8, 0)


def both_sizes(z):
    z.put32(z.local + 22, 1 << 20)
    z.put32(z.central + 24, 1 << 20)


def smaller_sizes(z):
    z.put32(z.local + 22, 5)
    z.put32(z.central + 24, 5)


def huge(z):
    z.put32(z.local + 22, 0xFFFFFFF0)
    z.put32(z.central + 24, 0xFFFFFFF0)


def both_crc(z):
    z.put32(z.local + 14, 5)
    z.put32(z.central + 16, 5)


def encrypted(z):
    z.both16(6, 1)


def masked(z):
    z.both16(6, 0x2000)


def method(z):
    z.both16(8, 98)


def overlap(z):
    z.put32(z.central + 42, 0)


def nul_in_name(z):
    z.data[z.local + 33] = 0
    z.data[z.central + 49] = 0


def zip64_sizes(z):
    z.put32(z.local + 22, 0xFFFFFFFF)
    z.put32(z.central + 24, 0xFFFFFFFF)


def data_error(z):
    z.data[z.local + 30 + len("victim.txt")] ^= 0xFF


def prefix(z):
    z.data[0:0] = b"#!/bin/sh\n"


def shifted_prefix(z):
    z.insert(0, b"#!/bin/sh\n")


def gap(z):
    z.insert(z.local, b"hidden")


def before_directory(z):
    z.insert(struct.unpack_from("<I", z.data, z.end + 16)[0], b"hidden")


def trailing(z):
    z.data += b"more"


def second_end(z):
    other = make_zip([entry("other")])
    z.put16(z.end + 20, len(other))
    z.data += other


def second_end_inside(z):
    record = bytes(z.data[z.end:])
    z.put16(z.end + 20, len(record))
    z.data += record


def fewer_entries(z):
    z.put16(z.end + 8, 1)
    z.put16(z.end + 10, 1)


def more_entries(z):
    z.put16(z.end + 8, 3)
    z.put16(z.end + 10, 3)


def parts(z):
    z.put16(z.end + 4, 1)


NAMED = [local_name, local_sizes, local_crc, local_method, both_sizes, smaller_sizes, huge, both_crc, encrypted, masked,
         method, overlap, zip64_sizes, data_error, gap]
UNNAMED = [prefix, shifted_prefix, before_directory, trailing, second_end, second_end_inside, fewer_entries, more_entries, parts]


def test_zip_readings(t):
    for bend in NAMED + UNNAMED + [nul_in_name]:
        z = Zip()
        bend(z)
        # Where the header's name is bent the directory's is shown.
        name = "victim" if bend in NAMED else "vic?im" if bend is nul_in_name else "zip: " if bend not in (prefix, shifted_prefix) else ""
        refused(t, "zip: " + bend.__name__, bytes(z.data), name, bytes(Zip().data))
    other = make_zip([GOOD], zipfile.ZIP_BZIP2)
    refused(t, "zip: bzip2 inside", other, "good/file.txt", make_zip([GOOD]))
    unicode_path = struct.pack("<HHBI", 0x7075, 5 + 5, 1, zlib.crc32(b"a.txt")) + b"b.txt"
    same_path = struct.pack("<HHBI", 0x7075, 5 + 5, 1, zlib.crc32(b"a.txt")) + b"a.txt"
    refused(t, "zip: a second name", zip_extra(unicode_path), "a.txt", zip_extra(same_path))


def zip_extra(extra):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        info = zipfile.ZipInfo("a.txt")
        info.extra = extra
        z.writestr(info, b"x")
    return out.getvalue()


# ---------------------------------------------------------------- sizes

def test_limits(t):
    many = make_zip([entry("f%d" % i) for i in range(21)])
    refused(t, "more entries than allowed", many, "20 entries", make_zip([entry("f%d" % i) for i in range(20)]),
            "--max-files", "20")
    for make in (make_zip, make_tar):
        refused(t, "more bytes than allowed, " + make.__name__[5:], make([entry("one", b"x" * 50), entry("two", b"x" * 51)]), "two",
                make([entry("one", b"x" * 50), entry("two", b"x" * 50)]), "--max-bytes", "100")
    archive = make_zip([entry("file", os.urandom(1000))])
    refused(t, "a large archive", archive + b"", "archive of more than", make_zip([entry("file", b"")]), "--max-input", "1000")
    bomb = make_zip([entry("bomb", bytes(64 << 20))])
    refused(t, "a bomb (ratio)", bomb, "bomb", make_zip([entry("bomb", bytes(8 << 20))]))
    info = tarfile.TarInfo("terabyte")
    info.size = 1 << 40
    refused(t, "a header that promises a terabyte", info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16), "terabyte", make_tar([GOOD]))
    bomb = make_tar([entry("bomb", bytes(300 << 20))], "w:gz")
    refused(t, "a bomb (size)", bomb, "bomb", make_tar([entry("bomb", bytes(8 << 20))], "w:gz"))


def test_broken(t):
    for name, data, step in (("zip", make_zip([GOOD, entry("x", b"y" * 300)]), 7),
                             ("tar.gz", make_tar([GOOD, entry("x", os.urandom(3000))], "w:gz"), 97),
                             ("tar.xz", make_tar([GOOD], "w:xz"), 29)):
        bad = [cut for cut in range(0, len(data) - 1, step) if unpack(data[:cut])[0] != 1]
        t.ok(not bad and unpack(data)[0] == 0, "%s: refused wherever it is cut" % name, repr(bad))
    data = bytearray(make_tar([GOOD, entry("x", os.urandom(3000))], "w:gz"))
    data[-6] ^= 1  # the checksum of gzip
    t.equal(unpack(bytes(data))[0], 1, "a wrong checksum of gzip is refused")
    for what in (b"", b"\0", b"no archive at all, only a few words of text", b"PK\3\4", b"Rar!\x1a\x07\0" * 20):
        t.equal(unpack(what)[0], 1, "%r is refused" % what[:8])


def test_random_damage(t):
    """Bits flipped anywhere: the worker ends by itself, with a well-formed stream and 0 or 1."""
    rng = random.Random(7)
    entries = [GOOD, entry("d/", b"", 0o755, stat.S_IFDIR), link("d/l", "x"), entry("d/x", b"z" * 500)]
    seeds = [make_zip(entries), make_tar(entries), make_tar(entries, "w:gz"), make_tar(entries, "w:xz")]
    statuses = set()
    for n in range(400):
        data = bytearray(seeds[n % len(seeds)])
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(min(len(data), 3000))] ^= 1 << rng.randrange(8)
        statuses.add(unpack(bytes(data))[0])
    t.equal(statuses, {0, 1}, "400 damaged archives: accepted or refused, never a crash")


# ---------------------------------------------------------------- confinement

def status_of(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def test_confined(t):
    """It waits for its first byte: by then everything has been given up."""
    with subprocess.Popen([UNPACK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        fields = tap.wait_until(lambda: (s := status_of(p.pid)).get("Seccomp") == "2" and s, 10)
        t.equal(fields and (fields["Seccomp"], fields["NoNewPrivs"]), ("2", "1"), "filter and no_new_privs before the first byte")
        with open("/proc/%d/limits" % p.pid, encoding="ascii") as f:
            limits = {line[:25].strip(): line[26:].split()[:2] for line in f}
        t.ok(limits["Max cpu time"] == ["60", "60"] and limits["Max processes"] == ["0", "0"], "limits are set", repr(limits))
        out, _ = p.communicate(make_zip([GOOD]))
        t.equal(frames(out)[0][1], b"good/file.txt", "and it still does its work")
    p = subprocess.run([UNPACK, "--max-files", "0"], input=b"", capture_output=True, check=False)
    t.equal((p.returncode, p.stdout), (2, b""), "a wrong option is a usage error")


if __name__ == "__main__":
    if not os.path.exists(UNPACK):
        tap.skip_all("nsbox-unpack is not built")
    sys.exit(tap.run([test_good, test_good_shapes, test_code_pages, test_scripts, test_names, test_entries, test_zip_readings, test_limits, test_broken,
                      test_random_damage, test_confined]))
