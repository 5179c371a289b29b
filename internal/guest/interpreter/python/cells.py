"""Runs cells: compiles them the way notebooks do and shows the last value."""

import builtins
import os
import sys

import _ast

AWAIT = 0x2000  # PyCF_ALLOW_TOP_LEVEL_AWAIT
AST = 0x400  # PyCF_ONLY_AST
COROUTINE = 0x80  # CO_COROUTINE

channel = worker.channel
main = None  # module in which code runs
sources = {}  # by file name, for tracebacks
loop = None  # the event loop of top-level await


class StdinNotImplementedError(RuntimeError):
    """Raised by input(), because a cell has no standard input."""


def no_input(prompt="", /):
    raise StdinNotImplementedError("input() was called, but a sandbox has no standard input.")


def prepare():
    """Creates an empty __main__ module for the code."""
    global main
    main = worker.MODULE("__main__")
    main.__dict__.update(__builtins__=builtins, get_ipython=get_ipython, display=display)
    sys.modules["__main__"] = main
    builtins.input = no_input
    os.register_at_fork(after_in_child=close_pipes)


def close_pipes():
    """Closes the pipes of the protocol in a forked child process."""
    for fd in (3, 4, 5):
        try:
            os.close(fd)
        except OSError:
            pass  # already closed, by the code or by an earlier fork


def get_ipython():
    return use("magics").shell


def display(*values, **options):
    return use("display").display(*values, **options)


def file_name(count):
    return "<cell %d>" % count


def remember(name, code):
    """Stores the source for tracebacks and inspect.getsource."""
    sources[name] = code
    lines = sys.modules.get("linecache")
    if lines is not None:
        lines.cache[name] = entry(name, code)


def entry(name, code):
    return len(code), None, [line + "\n" for line in code.split("\n")], name


def linecache_loaded(module):
    for name, code in sources.items():
        module.cache[name] = entry(name, code)


def parse(code, name):
    """Returns the code and its syntax tree. If the code is not valid Python, it
    is first rewritten as IPython rewrites all code: indentation and prompts are
    removed, and magics become calls."""
    if code.lstrip()[:2] != "%%":
        try:
            return code, compile(code, name, "exec", AST | AWAIT, True)
        except SyntaxError:
            if clean(code) == code and "%" not in code and "!" not in code:
                raise
    plain = use("magics").rewrite(clean(code))
    if plain != code:
        remember(name, plain)
    return plain, compile(plain, name, "exec", AST | AWAIT, True)


def clean(code):
    """Removes the indentation of the first line of code from all lines, and
    then removes prompts. It keeps empty lines before the code, so that line
    numbers in tracebacks are those of the caller's code."""
    lines = code.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return code
    indent = lines[first][:len(lines[first]) - len(lines[first].lstrip(" \t"))]
    lines[first:] = [line[len(indent):] if line.startswith(indent) else line for line in lines[first:]]
    if lines[first].startswith((">>>", "In [")):
        lines[first:] = use("magics").without_prompts(lines[first:])
    return "\n".join(lines)


def find_installed():
    """Adds the directory of the user's packages to the path, and returns whether
    it was missing there. Python does not add a directory that does not exist
    at the start, and the first installation creates it."""
    site = sys.modules.get("site")
    if site is None or not site.ENABLE_USER_SITE:
        return False
    path = site.getusersitepackages()
    if path in sys.path or not os.path.isdir(path):
        return False
    known = set(sys.path)
    site.addsitedir(path)
    # It precedes the system's packages, as after a start of Python.
    added = [p for p in sys.path if p not in known]
    before = [p for p in sys.path if p in known]
    at = next((i for i, p in enumerate(before) if p.endswith(("site-packages", "dist-packages"))), len(before))
    sys.path[:] = before[:at] + added + before[at:]
    return True


def run(code, count):
    """Runs a cell and shows its last value."""
    find_installed()
    name = file_name(count)
    remember(name, code)
    code, tree = parse(code, name)
    body, last = tree.body, None
    if body and isinstance(body[-1], _ast.Expr):
        last = body.pop().value
    try:
        if body:
            execute(compile(tree, name, "exec", AWAIT, True))
        if last is not None:
            value = execute(compile(_ast.Expression(last), name, "eval", AWAIT, True))
            if value is not None and not is_suppressed(code, last):
                show(value)
    finally:
        if not channel.forked():
            if "_crannog.magics" in sys.modules:
                for function in list(use("magics").shell.events.ended):
                    function()
            if "matplotlib.pyplot" in sys.modules:
                use("figures").flush()


def execute(code):
    value = eval(code, main.__dict__)
    if code.co_flags & COROUTINE:
        value = wait(value)
    return value


def is_suppressed(code, last):
    """Reports whether a semicolon after the last expression suppresses its value."""
    lines = code.split("\n")[last.end_lineno - 1:]
    if not lines or ";" not in "".join(lines):
        return False
    rest = lines[0].encode()[last.end_col_offset:].decode()
    return "\n".join([rest] + lines[1:]).lstrip(" \t\r\n)").startswith(";")


def wait(coroutine):
    """Runs a coroutine of top-level await on the worker's event loop."""
    global loop
    import asyncio

    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                pass
        raise


def show(value):
    space = main.__dict__
    if value is not space.get("_"):
        space["___"], space["__"], space["_"] = space.get("__"), space.get("_"), value
    kind = type(value)
    if kind in (int, float, bool, str, complex) and not channel.forked():
        text = repr(value)
        if len(text) <= 10000:
            channel.send({"type": "result", "text": unquote(text), "is_main_result": True}, ack=True)
            return
    use("formats").show(value, True)


def unquote(text):
    """Removes one pair of quotes, because clients expect strings without quotes."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def flush():
    for out in (sys.stdout, sys.stderr):
        try:
            out.flush()
        except Exception:
            pass  # the code replaced the stream by an object without flush


def end_child(failure):
    """Ends a forked child process in which the code has ended."""
    status = 0
    if isinstance(failure, SystemExit):
        status = failure.code if isinstance(failure.code, int) else 0 if failure.code is None else 1
    elif failure is not None:
        import traceback

        traceback.print_exception(type(failure), failure, failure.__traceback__)
        status = 1
    flush()
    os._exit(status & 0xFF)
