"""display(), and the commonly used part of IPython.display for sandboxes in which
IPython is not installed."""

import sys
from os import PathLike

formats = use("formats")


def display(*values, raw=False, include=None, exclude=None, **options):
    """Shows values to the client. With raw, they are dicts by MIME type."""
    for value in values:
        if raw and isinstance(value, dict):
            formats.send(value, False)
            continue
        forms = formats.bundle(value)
        if include:
            forms = {k: v for k, v in forms.items() if k in include}
        if exclude:
            forms = {k: v for k, v in forms.items() if k not in exclude}
        formats.send(forms, False)


def publish_display_data(data, metadata=None, **options):
    formats.send(data, False)


def clear_output(wait=False):
    """Does nothing, because the protocol cannot remove shown values."""


def update_display(value, display_id=None, **options):
    """Shows the value again, because the protocol cannot replace a shown value."""
    display(value)


class DisplayObject:
    """A value with one format, from data, a URL or a file."""

    mime = "text/plain"
    mode = "r"

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if isinstance(data, str) and filename is None and url is None and data.startswith(("http://", "https://")) \
                and self.mime.startswith("image/"):
            url, data = data, None
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata
        if data is None:
            self.reload()

    def reload(self):
        if self.filename is not None:
            with open(self.filename, self.mode) as f:
                self.data = f.read()
        elif self.url is not None:
            import urllib.request

            with urllib.request.urlopen(self.url) as f:
                body = f.read()
            self.data = body if "b" in self.mode else body.decode("utf-8", "replace")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class HTML(DisplayObject):
    mime = "text/html"

    def __html__(self):
        return self.data


class Markdown(DisplayObject):
    mime = "text/markdown"


class Latex(DisplayObject):
    mime = "text/latex"


class Math(Latex):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: "$\\displaystyle %s$" % self.data.strip("$")}


class SVG(DisplayObject):
    mime = "image/svg+xml"


class Javascript(DisplayObject):
    mime = "application/javascript"


class Pretty(DisplayObject):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.data}


class JSON(DisplayObject):
    mime = "application/json"

    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **options):
        super().__init__(data, url, filename, metadata)
        if isinstance(self.data, str):
            import json

            self.data = json.loads(self.data)


class Image(DisplayObject):
    mime = "image/png"
    mode = "rb"
    kinds = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, **options):
        if isinstance(data, str) and not data.startswith(("http://", "https://")):
            data, filename = None, data
        super().__init__(data, url, filename)
        self.mime = self.kinds.get((format or "").lower()) or self.guess()

    def guess(self):
        data = bytes(self.data or b"")
        for start, kind in ((b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp")):
            if data.startswith(start):
                return self.kinds[kind]
        return "image/png"


class IFrame:
    def __init__(self, src, width, height, **options):
        self.src, self.width, self.height = src, width, height

    def _repr_html_(self):
        import html

        return '<iframe width="%s" height="%s" src="%s" frameborder="0" allowfullscreen></iframe>' % (
            self.width, self.height, html.escape(str(self.src), True))


OFFERED = dict(
    display=display, clear_output=clear_output, update_display=update_display,
    publish_display_data=publish_display_data, DisplayObject=DisplayObject, HTML=HTML, Markdown=Markdown, Latex=Latex,
    Math=Math, SVG=SVG, Javascript=Javascript, Pretty=Pretty, JSON=JSON, Image=Image, IFrame=IFrame,
)


def substitute_spec(name):
    """Returns the spec of a substitute for a module of IPython, or None."""
    if name not in ("IPython", "IPython.display", "IPython.core", "IPython.core.display", "IPython.core.getipython",
                    "IPython.core.pylabtools"):
        return None
    import importlib.machinery

    return importlib.machinery.ModuleSpec(name, Loader, is_package=name in ("IPython", "IPython.core"))


class Loader:
    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__
        if name.endswith("display"):
            module.__dict__.update(OFFERED)
        elif name == "IPython.core.pylabtools":
            module.backend2gui = {}  # no backend has an event loop of a window
        elif name != "IPython.core":
            # If there is a shell, libraries expect all of IPython. IPython
            # returns None outside of a notebook, which libraries support.
            module.get_ipython = lambda: None
            module.display = display
            module.version_info = (8, 0, 0, "")  # matplotlib reads it


def ipython_loaded(module):
    """Replaces functions of an installed IPython by those of the worker."""
    for name in ("display", "update_display", "publish_display_data", "clear_output"):
        if hasattr(module, name):
            setattr(module, name, OFFERED[name])


def pillow_loaded(module):
    """Shows pictures to the client instead of in a window."""

    def show(self, *args, **options):
        display(self)

    module.Image.show = show
    write = module.Image.save

    def save(self, fp, format=None, **params):
        write(self, fp, format, **params)
        if isinstance(fp, (str, PathLike)) and not is_matplotlib(sys._getframe(1)):
            display(self)

    save.__doc__, save.__wrapped__ = write.__doc__, write
    module.Image.save = save


def is_matplotlib(frame):
    """Reports whether a frame belongs to matplotlib, which saves some formats
    through Pillow. Figures are shown with their data by plt.show() instead."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "matplotlib"
