"""The Python worker reads requests, runs them, and reports results.

This file has everything that a first execution needs. The sources of the other
parts are in the first request line. They are compiled when they are needed,
because compiling and importing take most of the start time. For the same
reason this file imports only modules that are built in or already loaded.
"""

import builtins
import os
import sys

import _signal
import _thread

MODULE = type(sys)


ESCAPES = {i: "\\u%04x" % i for i in range(32)}
ESCAPES.update({ord('"'): '\\"', ord("\\"): "\\\\"})


def loads(line):
    """Parses a line of the server. Its JSON has only objects, strings and
    numbers, which are also valid Python. Importing the json package would take
    more time than the rest of the start."""
    return eval(line.decode(), {"__builtins__": {}})


def dumps(value):
    """Renders None, booleans, integers, strings and dicts of them as JSON."""
    if isinstance(value, str):
        return '"%s"' % value.translate(ESCAPES)
    if isinstance(value, dict):
        return "{%s}" % ",".join(dumps(k) + ":" + dumps(v) for k, v in value.items())
    if isinstance(value, Raw):
        return value.text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


class Raw:
    """Encoded JSON."""

    def __init__(self, text):
        self.text = text


class Channel:
    """The pipe to the server. Signals, threads and forks of the code must not
    split its lines."""

    def __init__(self):
        self.pid = os.getpid()
        self.lock = _thread.allocate_lock()
        self.request = 0
        self.running = False  # code runs, so that an interrupt may be raised
        self.guarded = False  # a line is being written: interrupts wait
        self.pending = False  # an interrupt waits
        # Programs that the code starts must not inherit the pipes.
        for fd in (3, 4, 5):
            os.set_inheritable(fd, False)

    def forked(self):
        return os.getpid() != self.pid

    def send(self, message, ack=False):
        message["n"] = self.request
        if ack:
            message["ack"] = True
        # Lone surrogates, which UTF-8 cannot represent, become JSON escapes.
        data = dumps(message).encode(errors="backslashreplace") + b"\n"
        main = _thread.get_ident() == MAIN
        if main:
            self.guarded = True
        try:
            with self.lock:
                view = memoryview(data)
                while view:
                    view = view[os.write(4, view):]
                if ack and not os.read(5, 1):
                    os._exit(1)
        finally:
            if main:
                self.guarded = False
                if self.pending:
                    self.pending = False
                    raise KeyboardInterrupt

    def on_interrupt(self, signum, frame):
        if self.forked():
            raise KeyboardInterrupt
        if not self.running:
            return
        if self.guarded:
            self.pending = True
            return
        raise KeyboardInterrupt


MAIN = _thread.get_ident()
channel = Channel()


class Parts:
    """Imports modules that the worker provides, and calls a hook after certain
    modules are loaded, so that the worker need not load them early."""

    sources = {}
    # Modules that code can import, with the part that creates them.
    offered = {"crannog_figures": "figures"}
    # Hooks that are called after a module is loaded: a part and its function.
    hooks = {
        "linecache": ("cells", "linecache_loaded"),
        "matplotlib": ("figures", "matplotlib_loaded"),
        "PIL.Image": ("display", "pillow_loaded"),
        "IPython.display": ("display", "ipython_loaded"),
        "IPython.core.display_functions": ("display", "ipython_loaded"),
        "IPython.core.display": ("display", "ipython_loaded"),
    }

    def find_spec(self, name, path=None, target=None):
        if name in self.hooks:
            return self.watched(name, path, target)
        if name in self.offered:
            import importlib.machinery

            return importlib.machinery.ModuleSpec(name, self)
        return None

    def watched(self, name, path, target):
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                part, function = self.hooks[name]
                if hasattr(spec.loader, "exec_module"):
                    load = spec.loader.exec_module

                    def exec_module(module):
                        load(module)
                        getattr(use(part), function)(module)

                    try:
                        spec.loader.exec_module = exec_module
                    except AttributeError:
                        pass  # a loader without attributes: the module works without the hook
                return spec
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        use(self.offered[module.__name__]).fill(module)


class FallbackFinder:
    """Finds modules that no other finder has: packages in a directory that did
    not exist when Python started, and a substitute for IPython. It is the last
    finder, so that an installed IPython takes precedence."""

    def find_spec(self, name, path=None, target=None):
        if path is None and use("cells").find_installed():
            import importlib.machinery

            spec = importlib.machinery.PathFinder.find_spec(name)
            if spec is not None:
                return spec
        return use("display").substitute_spec(name) if name.split(".")[0] == "IPython" else None


def use(name):
    """Returns a part of the worker."""
    full = "_crannog." + name
    module = sys.modules.get(full)
    if module is None:
        module = MODULE(full)
        module.__dict__.update(worker=sys.modules["_crannog"], use=use)
        code = compile(Parts.sources[name], "<crannog %s>" % name, "exec")
        sys.modules[full] = module
        try:
            exec(code, module.__dict__)
        except BaseException:
            del sys.modules[full]
            raise
    return module


def set_env(values):
    """Sets environment variables and returns their previous values."""
    before = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    return before


def reset_env(before):
    for k, v in before.items():
        if v is None:
            os.environ.pop(k, None)
        else:
            os.environ[k] = v


def serve(request):
    """Runs one request. It returns even if the code raises any exception."""
    if "renew" in request or "preload" in request:
        return handle_control(request)
    channel.request = request["n"]
    before = set_env(request.get("env") or {})
    cells = use("cells")
    failure = None
    try:
        channel.running = True
        try:
            cells.run(request["code"], request["n"])
        finally:
            channel.running = False
    except BaseException as e:
        failure = e
    if channel.forked():
        # This is a child process that the code forked. It ends here, because
        # only one process may send messages to the server.
        cells.end_child(failure)
    if failure is not None:
        try:
            use("errors").report(failure)
        except BaseException as e:
            channel.send({"type": "error", "name": type(failure).__name__, "value": "",
                          "traceback": "The traceback could not be rendered: %s" % type(e).__name__})
        failure = None
    cells.flush()
    reset_env(before)
    channel.send({"type": "done"})


def handle_control(request):
    """Handles a request of the server that has no code."""
    channel.request = request["n"]
    try:
        change = request.get("renew")
        use("renewal").preload() if change is None else use("renewal").renew(change)
    except BaseException:
        pass  # code has replaced functions that this needs; its next cell will fail
    if "preload" in request:
        channel.send({"type": "done"})


def main(requests):
    module = MODULE("_crannog")
    module.__dict__.update(globals())
    sys.modules["_crannog"] = module
    Parts.sources = loads(requests.readline())
    sys.meta_path.insert(0, Parts())
    sys.meta_path.append(FallbackFinder())
    sys.argv = [""]
    for out in (sys.stdout, sys.stderr):
        out.reconfigure(encoding="utf-8", errors="backslashreplace")
    _signal.signal(_signal.SIGINT, channel.on_interrupt)
    use("cells").prepare()
    channel.send({"type": "ready"})
    while True:
        line = requests.readline()
        if not line:
            os._exit(0)
        serve(loads(line))


main(requests)  # noqa: F821, set by the program that runs this file
