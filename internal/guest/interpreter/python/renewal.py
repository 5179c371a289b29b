"""Brings a worker up to date when its sandbox has become another one, and
loads what its code will probably want."""

import os
import sys

# What the code of most users imports, in the order of what needs what.
USUAL = ("numpy", "pandas", "matplotlib.pyplot")


def preload():
    import importlib

    for name in USUAL:
        try:
            importlib.import_module(name)
        except Exception:
            pass  # it is not installed, or broken: a cell that imports it gets the error
    for part in ("formats", "display", "errors"):
        use(part)


def renew(change):
    """Changes what the code has not changed itself."""
    for name, value in change.get("env", {}).items():
        if os.environ.get(name) == value.get("from"):
            if "to" in value:
                os.environ[name] = value["to"]
            else:
                os.environ.pop(name, None)
    way = change.get("dir")
    if way is not None and os.getcwd() == way["from"]:
        os.chdir(way["to"])
    if change.get("seed"):
        reseed()


def reseed():
    """Lets every random stream that can be found start again: another sandbox
    has the same one. What hashes of strings begin with cannot be changed."""
    for name, begin in STREAMS.items():
        module = sys.modules.get(name)
        if module is not None:
            quietly(begin, module)
    main = sys.modules.get("__main__")
    for value in list(vars(main).values()) if main is not None else []:
        quietly(reseed_value, value)


def quietly(function, argument):
    try:
        function(argument)
    except Exception:
        pass  # the code has replaced it, or it is of an unknown version


STREAMS = {
    "random": lambda m: m.seed(),
    "numpy.random": lambda m: m.seed(),
    "torch": lambda m: m.seed(),
    # OpenSSL draws keys and nonces from a state in memory.
    "_ssl": lambda m: m.RAND_add(os.urandom(48), 48.0),
}


def reseed_value(value):
    """Does the same for a generator that the code keeps in a variable."""
    random = sys.modules.get("random")
    if random is not None and type(value) is random.Random:
        value.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and type(value) in (numpy.Generator, numpy.RandomState):
        bits = value.bit_generator if type(value) is numpy.Generator else value._bit_generator
        bits.state = type(bits)().state
