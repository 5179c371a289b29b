"""The Python worker: reads requests, runs them, and says how they went.

What is here is all that a first execution needs. The other parts come with
the first request line as source text and are compiled when something imports
them, because compiling and importing is most of what a start costs. This file
therefore imports only what the interpreter has loaded already or has built in.
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
    """Reads a line of the server's. Its JSON has objects, strings and numbers
    only, and those are Python as well; the json package would bring the re
    module and cost more than all the rest."""
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
    """JSON text that is ready."""

    def __init__(self, text):
        self.text = text


class Channel:
    """The pipe to the server. Its lines must stay whole, whatever signals,
    threads and forks the code brings."""

    def __init__(self):
        self.pid = os.getpid()
        self.lock = _thread.allocate_lock()
        self.request = 0
        self.running = False  # an interrupt may be raised
        self.guarded = False  # but only after this
        self.pending = False
        # A program that the code starts must not hold the pipes.
        for fd in (3, 4, 5):
            os.set_inheritable(fd, False)

    def forked(self):
        return os.getpid() != self.pid

    def send(self, message, ack=False):
        message["n"] = self.request
        if ack:
            message["ack"] = True
        # What UTF-8 cannot hold, lone surrogates, becomes an escape of JSON.
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
    """Finds the parts of the worker and stands in for modules that code may
    expect. It also tells us when some modules are loaded that need a word
    from us, so that none has to be loaded early."""

    sources = {}
    # Modules that exist for code, by the part that makes them.
    offered = {"crannog_figures": "figures"}
    # What to do after a module is loaded: the part and its function.
    after = {
        "linecache": ("cells", "linecache_loaded"),
        "matplotlib": ("figures", "matplotlib_loaded"),
        "PIL.Image": ("display", "pillow_loaded"),
        "IPython.display": ("display", "ipython_loaded"),
        "IPython.core.display_functions": ("display", "ipython_loaded"),
        "IPython.core.display": ("display", "ipython_loaded"),
    }

    def find_spec(self, name, path=None, target=None):
        if name in self.after:
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
                part, function = self.after[name]
                if hasattr(spec.loader, "exec_module"):
                    load = spec.loader.exec_module

                    def exec_module(module):
                        load(module)
                        getattr(use(part), function)(module)

                    try:
                        spec.loader.exec_module = exec_module
                    except AttributeError:
                        pass  # a loader without attributes: the module works without us
                return spec
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        use(self.offered[module.__name__]).fill(module)


class StandIn:
    """Looks once more for what no other finder has, in a directory of packages
    that did not exist when Python started. Then it offers IPython where it is
    not installed. It is asked last, so that the real one wins."""

    def find_spec(self, name, path=None, target=None):
        if path is None and use("cells").find_installed():
            import importlib.machinery

            spec = importlib.machinery.PathFinder.find_spec(name)
            if spec is not None:
                return spec
        return use("display").stand_in(name) if name.split(".")[0] == "IPython" else None


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
    """Sets environment variables and returns what undoes it."""
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
    """Runs one request. Whatever the code does, this returns."""
    if "renew" in request or "preload" in request:
        return attend(request)
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
        # The code forked and let the child run on: it ends here, because
        # only one process can speak to the server.
        cells.leave(failure)
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


def attend(request):
    """Does what the server asks for itself."""
    channel.request = request["n"]
    try:
        change = request.get("renew")
        use("renewal").preload() if change is None else use("renewal").renew(change)
    except BaseException:
        pass  # the code has broken what this needs, and its next cell will tell
    if "preload" in request:
        channel.send({"type": "done"})


def main(requests):
    module = MODULE("_crannog")
    module.__dict__.update(globals())
    sys.modules["_crannog"] = module
    Parts.sources = loads(requests.readline())
    sys.meta_path.insert(0, Parts())
    sys.meta_path.append(StandIn())
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
