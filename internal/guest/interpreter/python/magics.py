"""Notebook syntax that is not Python: !command, %magic and %%magic."""

import os
import re
import sys

cells = use("cells")

# The result of a line magic may be assigned: files = !ls
MARK = re.compile(r"=[ \t]*([!%])(?=[^=\s])")
TARGET = re.compile(r"[\w.,\[\]'\" \t()*]*$")
TOKEN = re.compile(r"'''|\"\"\"|'|\"|#|[()\[\]{}]|\\.|\\$")


ESCAPED = re.compile(r"(?<!\\)(\\\\)*\\$")


# Prompts that Python and IPython print before each line of input.
PROMPTS = (re.compile(r"(>>>|\.\.\.)( |\r?$)"), re.compile(r"In \[\d+\]: ?|\s*\.{3,}: ?"))


def without_prompts(lines):
    """Returns lines that were copied from a session without its prompts."""
    for prompt in PROMPTS:
        if prompt.match(lines[0]):
            return [prompt.sub("", line, count=1) if prompt.match(line) else line for line in lines]
    return lines


def rewrite(code):
    """Returns the code with magics turned into calls. Lines keep their numbers,
    so that tracebacks name the lines of the caller's code."""
    head = code.lstrip("\n ")
    if head.startswith("%%"):
        first, _, body = head[2:].partition("\n")
        name, _, args = first.partition(" ")
        return "get_ipython().run_cell_magic(%r, %r, %r)" % (name.strip(), args.strip(), body)
    out, state = [], State()
    lines = iter(code.split("\n"))
    for line in lines:
        if not state.fresh():
            state.feed(line)
            out.append(line)
            continue
        changed, extra = rewrite_line(line, lines)
        if changed is None:
            state.feed(line)
            out.append(line)
        else:
            out.append(changed)
            out.extend([""] * extra)
    return "\n".join(out)


def rewrite_line(line, following):
    """Returns the call that replaces a line with a magic, and the number of
    continuation lines. It returns None for a line of Python."""
    text = line.lstrip()
    indent, target = line[:len(line) - len(text)], ""
    match = MARK.search(line)
    if match and text[:1] not in ("!", "%") and text[:1] != "=" and TARGET.match(line, 0, match.start()):
        target, mark, rest = text[:match.start() - len(indent)].rstrip() + " = ", match.group(1), line[match.end():]
    elif text[:1] in ("!", "%") and text[1:2] not in ("", "="):
        mark, rest = text[0], text[1:]
    else:
        return None, 0
    extra = 0
    while rest.endswith("\\"):
        more = next(following, None)
        if more is None:
            break
        rest, extra = rest[:-1] + more.lstrip(), extra + 1
    if mark == "%":
        name, _, args = rest.partition(" ")
        return "%s%sget_ipython().run_line_magic(%r, %r)" % (indent, target, name, args.strip()), extra
    call = "getoutput" if target or rest.startswith("!") else "system"
    return "%s%sget_ipython().%s(%r)" % (indent, target, call, rest.lstrip("!")), extra


class State:
    """Tracks brackets, strings and backslashes, to determine whether the next
    line begins a statement."""

    def __init__(self):
        self.quote, self.depth, self.joined = "", 0, False

    def fresh(self):
        return not self.quote and self.depth == 0 and not self.joined

    def feed(self, line):
        self.joined = False
        for match in TOKEN.finditer(line):
            token = match.group()
            if token == "\\" and not self.quote:
                self.joined = True
            elif self.quote:
                if token == self.quote:
                    self.quote = ""
                elif token[0] == self.quote and len(token) == 3:
                    self.quote = ""  # the quote ends the string; the rest is an empty string
            elif token == "#":
                return
            elif token[0] in "'\"":
                self.quote = token
            elif token in "([{":
                self.depth += 1
            elif token in ")]}":
                self.depth = max(0, self.depth - 1)
        if len(self.quote) == 1 and not ESCAPED.search(line):
            self.quote = ""  # a simple string ends with its line


class UsageError(Exception):
    """Raised for a magic that does not exist or is used wrongly."""


class Events:
    """Functions that are called when a cell has ended, for matplotlib."""

    def __init__(self):
        self.ended = []

    def register(self, name, function):
        if name != "post_execute":
            raise UsageError("The event %s is not available here. There is: post_execute" % name)
        self.ended.append(function)

    def unregister(self, name, function):
        self.ended.remove(function)


class Shell:
    """The result of get_ipython(), with the methods that code commonly calls."""

    events = Events()

    @property
    def user_ns(self):
        return cells.main.__dict__

    @property
    def execution_count(self):
        return worker.channel.request

    def run_line_magic(self, name, line):
        function = LINE.get(name)
        if function is None:
            raise UsageError("%%%s is not available here. There are: %s" % (name, ", ".join("%" + n for n in sorted(LINE))))
        return function(expand(line))

    magic_names = property(lambda self: sorted(LINE))

    def run_cell_magic(self, name, line, cell):
        function = CELL.get(name)
        if function is None:
            raise UsageError("%%%%%s is not available here. There are: %s" % (name, ", ".join("%%" + n for n in sorted(CELL))))
        return function(expand(line), cell)

    def system(self, command):
        cells.main.__dict__["_exit_code"] = call(["-c", expand(command)])

    def getoutput(self, command, split=True):
        import subprocess

        out = subprocess.run([program(), "-c", expand(command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
        text = out.decode("utf-8", "replace")
        return text.splitlines() if split else text

    def run_cell(self, code, **options):
        return cells.execute(compile(code, "<cell>", "exec", cells.AWAIT, True))

    def set_next_input(self, text, replace=False):
        raise UsageError("There is no notebook here whose next cell could be set.")


def program():
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def call(args, text=None):
    """Runs a shell that inherits the worker's output."""
    import subprocess

    cells.flush()
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    with subprocess.Popen([program()] + args, stdin=stdin) as process:
        try:
            process.communicate(None if text is None else text.encode())
        except BaseException:
            end(process)
            raise
    return process.returncode


def end(process):
    """Ends a program after an interrupt. The program usually got the interrupt
    too and has a second to clean up. A program that ignores it is killed."""
    try:
        process.wait(1)
    except BaseException:
        process.kill()
        process.wait()


def expand(text):
    """Replaces {expression} and $name by Python values. Other names, such as
    variables of the shell, remain."""
    space = cells.main.__dict__

    def braces(match):
        try:
            return str(eval(match.group(1), space))
        except Exception:
            return match.group()

    text = re.sub(r"(?<![$\w\\])\{([^{}\n]+)\}", braces, text)
    return re.sub(r"\$([A-Za-z_]\w*)", lambda m: str(space[m.group(1)]) if m.group(1) in space else m.group(), text)


def cd(line):
    path = line.strip().strip("'\"") or "~"
    if path == "-":
        path = cd.before or os.getcwd()
    here = os.getcwd()
    os.chdir(os.path.expanduser(path))
    cd.before = here
    print(os.getcwd())


cd.before = None


def env(line):
    line = line.strip()
    if not line:
        return dict(os.environ)
    name, mark, value = line.partition("=" if "=" in line else " ")
    if not mark:
        return os.environ.get(name)
    os.environ[name.strip()] = value.strip()
    print("env: %s=%s" % (name.strip(), value.strip()))


def pip(line):
    import importlib.util
    import shlex
    import subprocess

    if importlib.util.find_spec("pip") is None:
        raise UsageError("pip is not installed in this sandbox.")
    status = subprocess.call([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"] + shlex.split(line),
                             stdin=subprocess.DEVNULL)
    if status:
        raise UsageError("pip failed with status %d; see its output." % status)


def evaluate(source):
    """Runs a statement or an expression in the module of the code."""
    space = cells.main.__dict__
    try:
        return eval(compile(source, "<timed>", "eval"), space)
    except SyntaxError:
        exec(compile(source, "<timed>", "exec"), space)


def time_line(line, cell=""):
    import time

    source = cell or line
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        return evaluate(source)
    finally:
        print("CPU times: total: %s\nWall time: %s" % (
            span(time.process_time() - cpu), span(time.perf_counter() - wall)))


def timeit_line(line, cell=None):
    import statistics
    import timeit

    number, repeat, rest = 0, 7, line.split(" ")
    while rest and re.match(r"-[nrqo]\d*$", rest[0]):
        option = rest.pop(0)
        if option[1] in "nr":
            value = int(option[2:] or rest.pop(0))
            number, repeat = (value, repeat) if option[1] == "n" else (number, value)
    line = " ".join(rest)
    timer = timeit.Timer(line if cell is None else cell, line if cell is not None and line.strip() else "pass",
                         globals=cells.main.__dict__)
    number = number or timer.autorange()[0]
    runs = [t / number for t in timer.repeat(max(1, repeat), number)]
    print("%s ± %s per loop (mean ± std. dev. of %d runs, %d loops each)" % (
        span(statistics.mean(runs)), span(statistics.pstdev(runs)), len(runs), number))


def span(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds / 1e-9)


def shell_cell(line, cell):
    status = call(["-s"] + line.split(), cell)
    if status:
        raise ShellError("the shell ended with status %d" % status)


class ShellError(Exception):
    """Raised when the commands of a %%bash cell fail."""


def write_file(line, cell):
    append, path = False, line.strip()
    if path.startswith("-a "):
        append, path = True, path[3:].strip()
    path = os.path.expanduser(path.strip("'\""))
    with open(path, "a" if append else "w") as f:
        f.write(cell)
    print("%s %s" % ("Appending to" if append else "Writing", path))


def form(mime):
    return lambda line, cell: use("formats").send({mime: cell}, False)


LINE = {
    "cd": cd, "pwd": lambda line: os.getcwd(), "env": env, "set_env": env, "pip": pip, "time": time_line,
    "timeit": timeit_line, "ls": lambda line: shell.system("ls " + line),
    # The backend is ignored: figures are always shown to the client.
    "matplotlib": lambda line: None,
}
CELL = {
    "bash": shell_cell, "sh": shell_cell, "time": time_line, "timeit": timeit_line, "writefile": write_file,
    "html": form("text/html"), "markdown": form("text/markdown"), "latex": form("text/latex"),
    "svg": form("image/svg+xml"), "javascript": form("application/javascript"),
}
shell = Shell()
