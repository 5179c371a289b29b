"""Applies a new configuration of the sandbox to a worker, and preloads the usual
libraries."""

import os
import sys

# Libraries that most code imports, in the order of their dependencies.
USUAL = ("numpy", "pandas", "matplotlib.pyplot")


def preload():
    import importlib

    for name in USUAL:
        try:
            importlib.import_module(name)
        except Exception:
            pass  # not installed or broken: a cell that imports it gets the error
    for part in ("formats", "display", "errors"):
        use(part)


def renew(change):
    """Changes variables and the directory, unless code has changed them."""
    for name, value in change.get("env", {}).items():
        if os.environ.get(name) == value.get("from"):
            if "to" in value:
                os.environ[name] = value["to"]
            else:
                os.environ.pop(name, None)
    directory = change.get("dir")
    if directory is not None and os.getcwd() == directory["from"]:
        os.chdir(directory["to"])
    if change.get("seed"):
        reseed()


def reseed():
    """Reseeds every random generator that it finds, because copies of the
    sandbox have the same state. The seed of string hashes cannot be changed."""
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
        pass  # code has replaced the generator, or its version is unknown


STREAMS = {
    "random": lambda m: m.seed(),
    "numpy.random": lambda m: m.seed(),
    "torch": lambda m: m.seed(),
    # OpenSSL draws keys and nonces from a state in memory.
    "_ssl": lambda m: m.RAND_add(os.urandom(48), 48.0),
}


def reseed_value(value):
    """Reseeds a generator in a variable of the code."""
    random = sys.modules.get("random")
    if random is not None and type(value) is random.Random:
        value.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and type(value) in (numpy.Generator, numpy.RandomState):
        bits = value.bit_generator if type(value) is numpy.Generator else value._bit_generator
        bits.state = type(bits)().state
