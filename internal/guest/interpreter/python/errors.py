"""Renders exceptions as Python prints them, without frames of the worker."""

import sys
import traceback

MAX = 200_000


def report(error):
    trim(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    worker.channel.send({
        "type": "error",
        "name": type(error).__name__,
        "value": shorten(text_of(error)),
        "traceback": shorten(render(error)),
    })


def text_of(error):
    try:
        return str(error)
    except Exception as e:
        return "<str() of the exception failed: %s>" % type(e).__name__


def render(error):
    # Python folds repeated frames, so that the text of a recursion stays short.
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip("\n")


def trim(error, seen=None):
    """Removes the worker's frames from an exception, its causes and contexts."""
    seen = seen if seen is not None else set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = skip_worker(error.__traceback__)
        for inner in getattr(error, "exceptions", None) or ():
            if isinstance(inner, BaseException):
                trim(inner, seen)
        if error.__cause__ is not None:
            trim(error.__cause__, seen)
        error = error.__context__


def skip_worker(tb):
    """Skips the worker's frames at the outer end of a traceback. Frames in
    between, as in a callback from display(), remain. An error without frames of
    the code, such as a syntax error, has no frames then."""
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith("<crannog"):
        tb = tb.tb_next
    return tb


def shorten(text):
    if len(text) <= MAX:
        return text
    half = MAX // 2
    return "%s\n… %d characters left out …\n%s" % (text[:half], len(text) - MAX, text[-half:])
