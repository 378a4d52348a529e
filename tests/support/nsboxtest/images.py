# SPDX-License-Identifier: Apache-2.0
"""Images for tests: small roots, layers byte by byte, and the archives they travel in."""

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile

BUSYBOX = "/bin/busybox"
APPLETS = ["sh", "ls", "cat", "stat", "rm", "mkdir", "rmdir", "touch", "echo", "id", "sleep", "dd", "env", "true",
           "head", "mv", "cp", "ln", "chmod", "readlink", "test", "df", "find", "wc", "whoami", "pwd", "seq", "mount"]


def member(name, content=None, **fields):
    """A tar member: a file where there is content, else what `type` says."""
    info = tarfile.TarInfo(name)
    info.type = fields.pop("type", tarfile.REGTYPE)
    info.mode = fields.pop("mode", 0o755 if info.type == tarfile.DIRTYPE else 0o644)
    info.mtime = fields.pop("mtime", 1000000000)
    info.size = len(content) if content is not None else 0
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def directory(name, **fields):
    return member(name, type=tarfile.DIRTYPE, **fields)


def link(name, target, **fields):
    return member(name, type=tarfile.SYMTYPE, linkname=target, **fields)


def hardlink(name, target, **fields):
    return member(name, type=tarfile.LNKTYPE, linkname=target, **fields)


def tar(*members, mode="w", fmt=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=fmt) as t:
        for info, content in members:
            t.addfile(info, None if content is None else io.BytesIO(content))
    return out.getvalue()


def busybox():
    """Members of a root that can run commands."""
    with open(BUSYBOX, "rb") as f:
        program = f.read()
    yield directory("bin")
    yield member("bin/busybox", program, mode=0o755)
    for applet in APPLETS:
        yield link("bin/" + applet, "busybox")
    yield directory("usr")
    yield directory("etc")
    yield member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n")


def busybox_tree(path):
    """The same as a directory, by hand."""
    os.makedirs(path + "/bin")
    os.makedirs(path + "/etc")
    shutil.copy(BUSYBOX, path + "/bin/busybox")
    for applet in APPLETS:
        os.symlink("busybox", path + "/bin/" + applet)
    return path


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def config(layers, arch, **extra):
    return {"architecture": arch, "os": "linux", "config": extra,
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha256(layer) for layer in layers]}}


def host_arch():
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


class Layout:
    """An OCI image layout, in memory: files by path."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        self.manifests = []

    def blob(self, data):
        digest = sha256(data)
        self.files["blobs/sha256/" + digest] = data
        return {"digest": "sha256:" + digest, "size": len(data)}

    def add(self, layers, arch=None, ref=None, compress=True, name=None, **extra):
        arch = arch or host_arch()
        kind = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compress else "")
        manifest = {
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                       **self.blob(json.dumps(config(layers, arch, **extra)).encode())},
            "layers": [{"mediaType": kind, **self.blob(gzip.compress(x, 1, mtime=0) if compress else x)}
                       for x in layers]}
        entry = {"mediaType": manifest["mediaType"], **self.blob(json.dumps(manifest).encode()),
                 "platform": {"os": "linux", "architecture": arch}}
        if ref:
            entry["annotations"] = {"org.opencontainers.image.ref.name": ref}
        if name:
            entry.setdefault("annotations", {})["io.containerd.image.name"] = name
        self.manifests.append(entry)
        return self

    def all(self):
        index = {"schemaVersion": 2, "manifests": self.manifests}
        return {**self.files, "index.json": json.dumps(index).encode()}

    def archive(self):
        return tar(*[member(name, data) for name, data in self.all().items()])

    def write(self, path):
        for name, data in self.all().items():
            os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
            with open(os.path.join(path, name), "wb") as f:
                f.write(data)
        return path


def docker_save(layers, tags=("test:latest",), old=True, arch=None, **extra):
    """What `docker save` writes: its old form, or the one since 25 that is an OCI layout as well."""
    text = json.dumps(config(layers, arch or host_arch(), **extra)).encode()
    if not old:
        layout = Layout().add(layers, arch, compress=False, name=tags[0] if tags else None, **extra)
        layout.files["manifest.json"] = json.dumps([{
            "Config": "blobs/sha256/" + sha256(text), "RepoTags": list(tags),
            "Layers": ["blobs/sha256/" + sha256(x) for x in layers]}]).encode()
        return layout.archive()
    members, paths, seen = [], [], {}
    for i, layer in enumerate(layers):
        name = sha256(b"%d" % i + layer)
        members.append(directory(name))
        members.append(member(name + "/VERSION", b"1.0"))
        if layer in seen:  # as Docker does it
            members.append(link(name + "/layer.tar", "../%s/layer.tar" % seen[layer]))
        else:
            members.append(member(name + "/layer.tar", layer))
        seen.setdefault(layer, name)
        paths.append(name + "/layer.tar")
    manifest = [{"Config": sha256(text) + ".json", "RepoTags": list(tags), "Layers": paths}]
    members.append(member(sha256(text) + ".json", text))
    members.append(member("manifest.json", json.dumps(manifest).encode()))
    return tar(*members)
