"""Converts values to formats that a client can show: always text, and the richer
formats that a value has."""

import sys

# Larger results are of no use to a client, and the server accepts at most 16 MiB.
MAX_TEXT = 1 << 20
MAX_FORM = 8 << 20
MAX_ALL = 14 << 20

# The methods by which values describe themselves to notebooks.
METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}

# Field names of the protocol by MIME type.
FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
    "application/json": "json", "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}
STRUCTURED = ("application/json", "e2b/data", "e2b/chart")


def show(value, main=False):
    send(bundle(value), main)


def bundle(value):
    """Returns the formats of a value by MIME type."""
    forms = special(value)
    custom = own_bundle(value)
    forms.update(own_methods(value, custom))
    forms.update(custom)
    forms.setdefault("text/plain", plain(value))
    return forms


def special(value):
    """Returns formats that the methods of a value do not provide."""
    forms = {}
    if type(value) in (dict, list):
        forms["application/json"] = value
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ())):
        forms["e2b/data"] = {str(k): list(v) for k, v in value.to_dict(orient="list").items()}
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, getattr(figure, "Figure", ())):
        forms.update(use("figures").forms(value))
    return forms


def own_bundle(value):
    method = find(value, "_repr_mimebundle_")
    if method is None:
        return {}
    try:
        forms = method(include=None, exclude=None)
    except Exception as e:
        print_failure("_repr_mimebundle_", e)
        return {}
    if isinstance(forms, tuple):
        forms = forms[0] if forms else {}
    return {str(k): v for k, v in forms.items() if v is not None} if isinstance(forms, dict) else {}


def own_methods(value, known):
    forms = {}
    for name, mime in METHODS.items():
        method = None if mime in known else find(value, name)
        if method is None:
            continue
        try:
            form = method()
        except Exception as e:
            print_failure(name, e)
            continue
        if isinstance(form, tuple) and form:
            form = form[0]  # the second element is metadata for notebooks
        if form is not None:
            forms[mime] = form
    return forms


def find(value, name):
    """Returns a method of a value. It returns None for a class, whose methods
    need an instance, and for an object that has every attribute."""
    if isinstance(value, type):
        return None
    try:
        if getattr(value, "_no_such_method_can_exist_", None) is not None:
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def print_failure(name, error):
    use("errors").trim(error)
    print("%s failed: %s: %s" % (name, type(error).__name__, error), file=sys.stderr)


def plain(value):
    text = repr(value)
    if len(text) > 79 and type(value) in (dict, list, tuple, set, frozenset) and len(text) < MAX_TEXT:
        import pprint

        try:
            text = pprint.pformat(value, width=79, sort_dicts=False)
        except Exception:
            pass  # repr is good enough
    return text


def send(forms, main):
    """Sends a value in several formats to the client."""
    left_out = []
    message, total, extra = {"type": "result", "is_main_result": main}, 0, {}
    for mime, form in forms.items():
        if mime == "text/plain":
            continue
        text = encode(mime, form)
        if text is None:
            continue
        if len(text) > MAX_FORM or total + len(text) > MAX_ALL:
            left_out.append("%s of %d bytes" % (mime, len(text)))
            continue
        total += len(text)
        if mime in FIELDS:
            message[FIELDS[mime]] = worker.Raw(text)
        else:
            extra[mime] = worker.Raw(text)
    text = use("cells").unquote(as_text(forms.get("text/plain", "")))
    if len(text) > MAX_TEXT:
        text = "%s… [%d characters left out]" % (text[:MAX_TEXT], len(text) - MAX_TEXT)
    if left_out:
        text += "\n[left out, too large: %s]" % ", ".join(left_out)
    if text or "text/plain" in forms:
        message["text"] = text
    if extra:
        message["extra"] = extra
    if worker.channel.forked():
        print(text)
    else:
        worker.channel.send(message, ack=True)


def encode(mime, form):
    """Returns a format as JSON text, or None if JSON cannot represent it."""
    import json

    if mime in STRUCTURED or isinstance(form, (dict, list)):
        try:
            return json.dumps(clean(form), allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return None
    if isinstance(form, (bytes, bytearray, memoryview)):
        import base64

        form = base64.b64encode(form).decode()
    return json.dumps(as_text(form))


def as_text(form):
    return form if isinstance(form, str) else str(form)


def clean(value, depth=0):
    """Returns a copy that JSON can represent: None for NaN, dates as ISO text,
    and numpy numbers as numbers. It raises TypeError for unknown types."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if value - value == 0 else None
    if depth > 200:
        raise RecursionError
    if isinstance(value, dict):
        return {key(k): clean(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v, depth + 1) for v in value]
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        return None if text == "NaT" else text
    for method in ("tolist", "item"):
        if hasattr(value, method) and hasattr(value, "dtype"):
            return clean(getattr(value, method)(), depth + 1)
    if type(value).__name__ in ("Decimal", "Fraction", "UUID", "Timedelta", "timedelta", "Period", "Interval"):
        return str(value)
    if type(value).__name__ == "NAType":
        return None
    raise TypeError(type(value).__name__)


def key(k):
    if isinstance(k, str):
        return k
    if k is None or isinstance(k, (bool, int, float)):
        return {None: "null", True: "true", False: "false"}[k] if k is None or isinstance(k, bool) else str(k)
    if hasattr(k, "isoformat") or hasattr(k, "item"):
        return str(k)
    raise TypeError(type(k).__name__)
