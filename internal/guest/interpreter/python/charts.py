"""Extracts the data of a matplotlib figure, in the chart format of clients."""

import re

# matplotlib stores the shares of a pie in single precision, so an angle is
# exact to about 0.00002 degrees.
ANGLE_PLACES = 4


def extract(figure):
    """Returns the chart of a figure, a superchart for several, or None for none."""
    charts = [c for c in (chart_of(axes) for axes in figure.axes) if c is not None]
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) is not None else None
    return {"type": "superchart", "title": title or None, "elements": charts}


def chart_of(axes):
    """Returns the chart of an axes object. Its type depends on the artists."""
    from matplotlib.patches import Wedge

    bars = bar_containers(axes)
    if any(isinstance(p, Wedge) for p in axes.patches):
        kind, elements = "pie", pie(axes)
    elif boxes(axes):
        kind, elements = "box_and_whisker", boxes(axes)
    elif bars:
        kind, elements = "bar", bar(axes, bars)
    elif visible_lines(axes):
        kind, elements = "line", line(axes)
    elif scatter_collections(axes):
        kind, elements = "scatter", scatter(axes)
    elif axes.has_data():
        kind, elements = "unknown", []
    else:
        return None
    chart = {"type": kind, "title": axes.get_title() or None, "elements": elements}
    if kind in ("pie", "unknown"):
        return chart
    for side, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        label = axis.get_label_text()
        chart[side + "_label"] = label or None
        chart[side + "_unit"] = unit(label)
        if kind in ("line", "scatter"):
            chart.update(ticks(side, axis))
    return chart


def unit(label):
    """Returns the unit in brackets at the end of a label."""
    match = re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", label or "")
    return match.group(1) if match else None


def scale(axis):
    from matplotlib.category import StrCategoryConverter
    from matplotlib.dates import DateConverter, _SwitchableDateConverter

    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    if isinstance(converter, (DateConverter, _SwitchableDateConverter)) or is_pandas_date(axis, converter):
        return "datetime"
    if isinstance(converter, StrCategoryConverter):
        return "categorical"
    return axis.get_scale()


def is_pandas_date(axis, converter):
    return type(converter).__name__ in ("DatetimeConverter", "PandasAutoDateConverter")


def ticks(side, axis):
    kind = scale(axis)
    low, high = sorted(axis.get_view_interval())
    places = [p for p in axis.get_ticklocs() if low <= p <= high]
    labels = [t.get_text() for t in axis.get_ticklabels()]
    if len(labels) != len(axis.get_ticklocs()) or not any(labels):
        labels = list(axis.get_major_formatter().format_ticks(axis.get_ticklocs()))
    labels = [label for place, label in zip(axis.get_ticklocs(), labels) if low <= place <= high]
    return {
        side + "_ticks": [plotted_value(p, kind, axis) for p in places],
        side + "_tick_labels": labels,
        side + "_scale": kind,
    }


def plotted_value(value, kind, axis):
    """Converts a coordinate to the value that the code plotted."""
    if kind == "datetime" and isinstance(value, (int, float)) or kind == "datetime" and hasattr(value, "dtype") and value.dtype.kind == "f":
        from matplotlib.dates import num2date

        return num2date(value).replace(tzinfo=None).isoformat()
    if kind == "categorical" and hasattr(axis.units, "_mapping"):
        names = {place: name for name, place in axis.units._mapping.items()}
        return names.get(float(value) if not isinstance(value, str) else value, value if isinstance(value, str) else float(value))
    return number(value)


def number(value):
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "astype") and getattr(value, "dtype", None) is not None and value.dtype.kind == "M":
        return str(value.astype("datetime64[us]"))
    if isinstance(value, str):
        return value
    return float(value) if not float(value).is_integer() else int(value)


def computed(value):
    """Returns a number that matplotlib has computed, without rounding errors in
    its last digits."""
    return number(float("%.14g" % value))


def pairs(axes, xs, ys):
    import numpy

    kinds = scale(axes.xaxis), scale(axes.yaxis)
    return [
        [plotted_value(x, kinds[0], axes.xaxis), plotted_value(y, kinds[1], axes.yaxis)]
        for x, y in zip(numpy.ma.filled(numpy.ma.asarray(xs, dtype=float), numpy.nan),
                        numpy.ma.filled(numpy.ma.asarray(ys, dtype=float), numpy.nan))
        if numpy.isfinite(x) and numpy.isfinite(y)
    ]


def label_of(artist, place, what):
    label = str(artist.get_label())
    return "%s %d" % (what, place) if label.startswith("_") else label


def visible_lines(axes):
    return [artist for artist in axes.get_lines() if len(artist.get_xdata(orig=False)) > 1 or artist.get_marker() not in ("None", None, "")]


def line(axes):
    return [
        {"label": label_of(artist, i, "Line"), "points": pairs(axes, artist.get_xdata(orig=False), artist.get_ydata(orig=False))}
        for i, artist in enumerate(visible_lines(axes))
    ]


def scatter_collections(axes):
    from matplotlib.collections import PathCollection

    return [c for c in axes.collections if isinstance(c, PathCollection)]


def scatter(axes):
    elements = []
    for i, artist in enumerate(scatter_collections(axes)):
        offsets = artist.get_offsets()
        elements.append({"label": label_of(artist, i, "Group"), "points": pairs(axes, offsets[:, 0], offsets[:, 1])})
    return elements


def bar_containers(axes):
    from matplotlib.container import BarContainer

    return [c for c in axes.containers if isinstance(c, BarContainer) and len(c.patches)]


def bar(axes, containers):
    """Returns one element for each bar. A group has the bars of a bar call, and
    labels are categories."""
    elements = []
    for i, container in enumerate(containers):
        horizontal = is_horizontal(container)
        axis = axes.yaxis if horizontal else axes.xaxis
        names = tick_names(axis)
        kind = scale(axis)
        for patch in container.patches:
            middle = patch.get_y() + patch.get_height() / 2 if horizontal else patch.get_x() + patch.get_width() / 2
            value = patch.get_width() if horizontal else patch.get_height()
            name = names.get(round(float(middle), 6))
            if name is None:
                name = nearest(names, middle) if len(containers) > 1 else None
            elements.append({
                "label": name if name is not None else str(plotted_value(middle, kind, axis)),
                "group": label_of(container, i, "Group") if container.get_label() else "Group %d" % i,
                "value": number(value),
            })
    return elements


def is_horizontal(container):
    if getattr(container, "orientation", None) in ("vertical", "horizontal"):
        return container.orientation == "horizontal"
    heights = {round(float(p.get_height()), 9) for p in container.patches}
    return len(heights) == 1 and len({round(float(p.get_width()), 9) for p in container.patches}) > 1


def tick_names(axis):
    """Returns the tick labels that the code set, by their position."""
    if scale(axis) == "categorical":
        return {round(float(place), 6): name for name, place in axis.units._mapping.items()}
    from matplotlib.ticker import FixedFormatter, FuncFormatter, NullFormatter

    formatter = axis.get_major_formatter()
    if not isinstance(formatter, (FixedFormatter, FuncFormatter)) or isinstance(formatter, NullFormatter):
        return {}
    labels = formatter.format_ticks(axis.get_ticklocs())
    return {round(float(place), 6): label for place, label in zip(axis.get_ticklocs(), labels) if label}


def nearest(names, place):
    """Returns the label of the category nearest to a bar in a group."""
    best = min(names, key=lambda p: abs(p - place), default=None)
    return names[best] if best is not None and abs(best - place) <= 0.5 else None


def pie(axes):
    from matplotlib.patches import Wedge

    wedges = [p for p in axes.patches if isinstance(p, Wedge)]
    return [
        {"label": str(w.get_label()) if not str(w.get_label()).startswith("_") else "Wedge %d" % i,
         "angle": number(round(abs(float(w.theta2) - float(w.theta1)), ANGLE_PLACES)), "radius": number(w.r)}
        for i, w in enumerate(wedges)
    ]


def boxes(axes):
    """Returns the boxes that boxplot() drew. A box is a closed outline with a
    median line across it, whiskers at its ends, and points beyond them."""
    outlines = []
    for shape in list(axes.get_lines()) + list(axes.patches):
        points = outline(shape)
        if points is not None:
            outlines.append((shape, points))
    if not outlines or not axes.get_lines():
        return []
    elements = []
    for horizontal in (False, True):
        elements = [e for e in (box(axes, points, horizontal) for _, points in outlines) if e is not None]
        if elements:
            break
    return elements


def outline(shape):
    """Returns the corners of a rectangle-like shape, or None."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch

    if isinstance(shape, Line2D):
        points = list(zip(shape.get_xdata(orig=False), shape.get_ydata(orig=False)))
    elif isinstance(shape, PathPatch):
        points = [tuple(p) for p in shape.get_path().vertices]
    else:
        return None
    if len(points) < 5 or len(points) > 12:
        return None
    if isinstance(shape, Line2D) and tuple(points[0]) != tuple(points[-1]):
        return None
    points = [(float(x), float(y)) for x, y in points]
    return points


def box(axes, points, horizontal):
    along = 1 if not horizontal else 0
    across = 1 - along
    first, third = min(p[along] for p in points), max(p[along] for p in points)
    left, right = min(p[across] for p in points), max(p[across] for p in points)
    middle = (left + right) / 2
    crossing, low, high, outliers = [], first, third, []
    for artist in axes.get_lines():
        data = [artist.get_xdata(orig=False), artist.get_ydata(orig=False)]
        us, vs = [float(v) for v in data[across]], [float(v) for v in data[along]]
        if len(us) == 2 and vs[0] == vs[1] and first <= vs[0] <= third and left - 1e-9 <= min(us) < max(us) <= right + 1e-9:
            crossing.append((round(max(us) - min(us), 9), len(crossing), vs[0]))
        elif len(us) == 2 and us[0] == us[1] and abs(us[0] - middle) < 1e-9 and vs[0] != vs[1]:
            low, high = min(low, *vs), max(high, *vs)
        elif us and artist.get_linestyle() in ("None", "none", "", " ") and all(abs(u - middle) < 1e-9 for u in us):
            outliers += vs
    if not crossing:
        return None
    median = max(crossing)[2]  # the ends of the whiskers are shorter and were drawn earlier
    names = tick_names(axes.yaxis if horizontal else axes.xaxis)
    return {
        "label": str(names.get(round(middle, 6), number(middle))), "min": computed(low), "first_quartile": computed(first),
        "median": computed(median), "third_quartile": computed(third), "max": computed(high),
        "outliers": [number(v) for v in outliers],
    }
