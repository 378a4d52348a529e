# SPDX-License-Identifier: Apache-2.0
"""Calls one Python function inside a sandbox: request on descriptor 3, result on descriptor 4.

The request is one JSON object, read to its end before anything else happens:

    code      source text; common indentation is removed
    function  name of a top-level name to call, or null for the last one that was defined
    params    keyword arguments, an object
    expression the same as the text of a Python expression, evaluated here with nothing but the
              builtins; either this or params
    path      directories to search for modules after the interpreter's own; or absent
    memory_mb the run's memory limit, for the text of a MemoryError
    noexec    base64 of struct sock_filter[]: stacked onto the sandbox's own system call filter
              before any of the code runs, so that the interpreter starts no program; or null
    compat    list of words, each for one behaviour of MaxKB that is otherwise mended: see below

The result is one JSON object, {"ok":true,"value":...} or {"ok":false,"msg":"..."}. It is only the
tool's own value: nothing is decided by it, so forging it gains nothing. Where the code ends the
interpreter (sys.exit, a signal, KeyboardInterrupt) there is no result, and the caller judges by
exit status and standard error.

How a function is chosen and what becomes of its value follows MaxKB's executor: the code runs with
separate global and local names; without `function` the *last newly inserted* top-level name is
called, whatever it is; values that JSON lacks become str(value); NaN and the infinities travel as
such. Where this differs, and the word that gives the old way back:

  - the last function stays visible to itself, so that it may recurse ("recursion": it is removed);
  - starting a program where that is refused raises PermissionError ("subprocess": one line on
    standard error and exit status 126, which no try statement sees);
  - the environment is the sandbox's minimal one ("environment": empty);
  - modules beside the code, in the working directory, can be imported, last in order.

Arguments as JSON know NaN, where MaxKB, which writes them down as an expression, fails with a
NameError; `expression` does as MaxKB does.

Start-up time is part of every call, so only modules that cost nothing are imported at the top. With
the argument "ahead" the interpreter was started before its call is known, and has time to import more; a
second one is the call's `noexec`, which is known by then.
"""
import os
import sys

REQUEST_FD = 3
RESULT_FD = 4

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

# A call that does nothing, and in base64 a filter that refuses nothing.
NOTHING = b'{"code":"def f(a):\\n return [a, 1.5]","function":null,"params":{"a":"b"},"compat":[]}'
ALLOW_ALL = b"BgAAAAAA/38="


def read_all(fd):
    chunks = []
    while True:
        chunk = os.read(fd, 1 << 20 if chunks else 1 << 16)  # mostly a pipe's, all at once
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def json_codecs():
    """loads and dumps(value, default=None), from the C core of json: the package around it imports
    re and more, which takes longer than most calls. Another interpreter gets the package."""
    try:
        from _json import encode_basestring_ascii, make_encoder, make_scanner
    except ImportError:
        import json

        return json.loads, json.dumps

    class Context:
        strict = True
        object_hook = object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = {"NaN": float("nan"), "Infinity": float("inf"),
                          "-Infinity": float("-inf")}.__getitem__

    def unserializable(value):
        raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)

    def loads(raw):
        return make_scanner(Context)(raw.decode("utf-8", "surrogatepass"), 0)[0]

    def dumps(value, default=unserializable):
        encode = make_encoder({}, default, encode_basestring_ascii, None, ": ", ", ", False, False,
                              True)
        return "".join(encode(value, 0))

    return loads, dumps


def dedent(text):
    """textwrap.dedent without its import of re: same rules, lines end at a newline alone."""
    lines = text.split("\n")
    margin = None
    for i, line in enumerate(lines):
        body = line.lstrip(" \t")
        if not body:
            lines[i] = ""
            continue
        indent = line[: len(line) - len(body)]
        if margin is None:
            margin = indent
        while not indent.startswith(margin):
            margin = margin[:-1]
    if margin:
        lines = [line[len(margin):] for line in lines]
    return "\n".join(lines)


def filter_installer():
    """install(program): stack a seccomp filter on this thread, the only one so far; all later threads
    inherit it. What it needs is made here, where there may be time for it."""
    import ctypes

    class Fprog(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    addressof, get_errno = ctypes.addressof, ctypes.get_errno

    def install(program):
        if not program or len(program) % 8:
            raise ValueError("the filter is not a whole number of instructions")
        fprog = Fprog(len(program) // 8, program)
        if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(get_errno(), "no_new_privs could not be set")
        if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, addressof(fprog), 0, 0) != 0:
            raise OSError(get_errno(), "the filter could not be installed")

    return install


COMPAT_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn",
                 "os.fork", "os.forkpty", "pty.spawn")


def refuse_as_maxkb(event, args):
    if event in COMPAT_EVENTS:
        os.write(2, b"Permission denied to create subprocess.\n")
        os._exit(126)


def forbid_programs(request, tools):
    tools.forbid(request["noexec"])
    if "subprocess" in request["compat"]:
        sys.addaudithook(refuse_as_maxkb)


def choose(names, function, hide):
    if function is not None:
        return names.get(function)
    if not names:
        return names.popitem()  # raises the KeyError whose text callers know
    if hide:
        return names.popitem()[1]
    return names[next(reversed(names))]


def extend_path(directories):
    for directory in directories:
        if directory not in sys.path:
            sys.path.append(directory)


def call(request):
    extend_path([*request.get("path", ()), os.getcwd()])
    if "environment" in request["compat"]:
        os.environ.clear()
    params = request.get("params")
    if "expression" in request:
        params = eval(request["expression"], {})
    global_names = {}
    local_names = {}
    exec(dedent(request["code"]), global_names, local_names)
    function = choose(local_names, request.get("function"), "recursion" in request["compat"])
    global_names.update(local_names)
    return function(**params)


def message_of(error, request):
    if isinstance(error, MemoryError):
        limit = request.get("memory_mb")
        return "Cannot allocate more memory: exceeded the limit of %s MB." % limit
    try:
        return str(error)
    except Exception:  # the code's own __str__ may fail
        return type(error).__name__


def result_of(request, tools):
    dumps = tools.dumps
    if request.get("noexec"):
        try:
            forbid_programs(request, tools)
        except Exception as error:
            return '{"ok":false,"msg":%s}' % dumps(
                "the filter that forbids programs is not in force: %s" % error)
    try:
        return '{"ok":true,"value":%s}' % dumps(call(request), default=str)
    except Exception as error:
        message = message_of(error, request)
    # Outside the handler: the traceback holds the frames, and they what filled the memory.
    return '{"ok":false,"msg":%s}' % dumps(message)


class Tools:
    """What the runner itself needs for a call. `install` and `exit` are made for it, unless there was
    time before; `known` is the last module that was imported by then, `forbidden` the filter in force."""

    def __init__(self):
        self.loads, self.dumps = json_codecs()
        self.install = self.exit = self.known = self.forbidden = None

    def forbid(self, noexec):
        from binascii import a2b_base64

        if noexec != self.forbidden:
            (self.install or filter_installer())(a2b_base64(noexec))
            self.forbidden = noexec

    def prepare(self):
        from ctypes import PyDLL

        self.install = filter_installer()
        self.exit = PyDLL(None).exit


def warm_up(tools):
    """Before there is a call: what many calls import, and what the runner itself will use, a call of
    nothing included, whose pages and caches the true one finds. None of it may leave anything that the
    code could tell from a fresh interpreter but by sys.modules."""
    for name in ("atexit", "binascii", "ctypes", "datetime", "io", "json", "re", "types", "typing"):
        __import__(name)
    tools.prepare()
    path = sys.path[:]
    result_of(tools.loads(NOTHING), tools)
    sys.path[:] = path
    settle(tools)


def settle(tools):
    """A later collection of garbage looks at what the call has made, and no further."""
    import gc

    tools.known = next(reversed(sys.modules))
    gc.collect()
    gc.freeze()


def flush_files():
    """What a file that is still open has not written: a module's teardown would have."""
    import gc
    import io

    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            try:
                thing.flush()
            except Exception:
                pass  # closed, or its descriptor is


def newer(known):
    """Modules, the latest first, until one that is known."""
    for name in reversed(sys.modules):
        if name == known:
            return
        yield sys.modules[name]


def any_from(directories, known):
    owned = tuple(d.rstrip("/") + "/" for d in directories)
    try:
        return any(str(getattr(m, "__file__", "")).startswith(owned) for m in newer(known))
    except Exception:  # code may have put anything there
        return True


def leave(tools, brought):
    """End as the interpreter ends, but for taking apart one module after the other, which takes longer
    than most calls: threads, exit functions, finalizers of what the call has made, streams, the C
    library's exit(). `brought` are directories of modules that are the call's own: where one of them was
    imported, and where ctypes is not there, the long way is taken."""
    if "ctypes" not in sys.modules or any_from(brought, tools.known):
        return
    import atexit
    import gc

    threading = sys.modules.get("threading")
    for end in (threading and threading._shutdown, atexit._run_exitfuncs, gc.collect):
        try:
            if end:
                end()
        except BaseException:
            sys.excepthook(*sys.exc_info())
    flush_files()
    try:
        sys.stdout.flush()
    except Exception:
        return  # which tells of it, and has a status for it
    if not tools.exit:
        tools.prepare()
    tools.exit(0)


def become(library, modules):
    """As a template (nsbox/template.h): import what the operator wants in every interpreter, and wait.
    Each return is a fork of this process, locked down in a sandbox of its own, with the arguments and the
    variables of its run; what an interpreter does at its start but forking leaves out is done here."""
    import ctypes

    tools = Tools()
    warm_up(tools)
    for name in modules.split(","):
        if name:
            __import__(name)
    lib = ctypes.PyDLL(library)
    python = ctypes.pythonapi
    for strings in (lib.nsbox_template_argv, lib.nsbox_template_env):
        strings.restype = ctypes.POINTER(ctypes.c_char_p)
    python.PyOS_BeforeFork.restype = python.PyOS_AfterFork_Child.restype = None
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("one of the modules %r has started a thread" % modules)
    settle(tools)
    play(tools, lib)
    python.PyOS_BeforeFork()
    if lib.nsbox_template_serve(3):
        os._exit(0)
    python.PyOS_AfterFork_Child()  # the module random, for one, has a new seed
    begin_anew(listed(lib.nsbox_template_argv()), listed(lib.nsbox_template_env()))
    return tools


def play(tools, lib):
    """A call of nothing by a fork, which ends with a look at what it has written to."""
    lib.nsbox_template_expect()
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        lib.nsbox_template_learnt()
        return
    try:
        given, taken = os.pipe(), os.open(os.devnull, os.O_WRONLY)
        write_all(given[1], NOTHING.replace(b"{", b'{"noexec":"%s",' % ALLOW_ALL, 1))
        os.close(given[1])
        os.dup2(given[0], REQUEST_FD)
        os.dup2(taken, RESULT_FD)
        begin_anew([os.fsencode(a) for a in sys.orig_argv], [k + b"=" + v for k, v in os.environb.items()])
        tools.exit = lib.nsbox_template_learn
        answer(tools)
    finally:
        os._exit(1)


def listed(strings):
    found = []
    while strings[len(found)] is not None:
        found.append(strings[len(found)])
    return found


def begin_anew(argv, env):
    import _signal

    sys.orig_argv[:] = [os.fsdecode(a) for a in argv]
    sys.argv[:] = sys.orig_argv[2:]
    for entry in env:  # the template's own are among them (template_serve.c)
        name, value = entry.split(b"=", 1)
        os.environb[name] = value
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_IGN)
    if "numpy.random" in sys.modules:  # does not see that it was forked
        sys.modules["numpy.random"].seed()


def main():
    if sys.argv[1:2] == ["template"]:
        tools = become(*sys.argv[2:])
    else:
        tools = Tools()
    if sys.argv[1:2] == ["ahead"]:
        get_ready(tools, sys.argv[2:])
    answer(tools)


def get_ready(tools, noexec):
    del sys.argv[1:]
    if not tools.known:  # a template's fork has been warm from its beginning
        warm_up(tools)
    for program in noexec:
        tools.forbid(program)


def answer(tools):
    # Neither descriptor is anything to a program that the code may start.
    os.set_inheritable(REQUEST_FD, False)
    os.set_inheritable(RESULT_FD, False)
    raw = read_all(REQUEST_FD)
    os.close(REQUEST_FD)
    request = tools.loads(raw)
    del raw
    owner, start = os.getpid(), os.getcwd()
    result = result_of(request, tools)
    if os.getpid() == owner:  # a forked child that returns from the function has no say
        write_all(RESULT_FD, result.encode("ascii"))
        os.close(RESULT_FD)
        leave(tools, [*request.get("path", ()), start])


# A module name of its own keeps multiprocessing's "spawn" from calling the function again.
if __name__ == "__main__":
    main()
