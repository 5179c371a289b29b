"""Shows matplotlib figures with a backend without windows. The backend is chosen
when the code imports matplotlib."""

import os
import sys

shown = set()  # figures that this cell has shown


def matplotlib_loaded(module):
    """Chooses the worker's backend, unless the environment names one. It does
    not set the variable, because programs that the code starts do not have
    the backend's module."""
    if not os.environ.get("MPLBACKEND"):
        module.rcParams["backend"] = "module://crannog_figures"


def fill(module):
    """Fills the backend module."""
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Manager(FigureManagerBase):
        def show(self):
            display(self.canvas.figure)

    class Canvas(FigureCanvasAgg):
        manager_class = Manager

    def new_figure_manager(num, *args, FigureClass=Figure, **options):
        return new_figure_manager_given_figure(num, FigureClass(*args, **options))

    def new_figure_manager_given_figure(num, figure):
        return Manager(Canvas(figure), num)

    module.__dict__.update(
        FigureCanvas=Canvas, FigureManager=Manager, new_figure_manager=new_figure_manager,
        new_figure_manager_given_figure=new_figure_manager_given_figure, show=show, draw_if_interactive=lambda: None)


def show(*args, **options):
    """Shows all open figures and closes them: plt.show()."""
    from matplotlib import pyplot
    from matplotlib._pylab_helpers import Gcf

    try:
        for manager in Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if id(figure) not in shown:
                display(figure)
    finally:
        pyplot.close("all")


def display(figure):
    use("formats").show(figure)


def flush():
    """Shows figures that the code has drawn but not shown, at the end of a cell.
    It does nothing if the code chose another backend."""
    import matplotlib

    try:
        if matplotlib.rcParams._get_backend_or_none() == "module://crannog_figures" \
                if hasattr(matplotlib.rcParams, "_get_backend_or_none") \
                else matplotlib.get_backend() == "module://crannog_figures":
            show()
    finally:
        shown.clear()


def forms(figure):
    """Returns the formats of a figure by MIME type."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg

    shown.add(id(figure))
    picture = io.BytesIO()
    canvas = figure.canvas if isinstance(figure.canvas, FigureCanvasAgg) else FigureCanvasAgg(figure)
    canvas.print_figure(picture, format="png", bbox_inches="tight", dpi=figure.dpi)
    found = {"image/png": picture.getvalue()}
    try:
        chart = use("charts").extract(figure)
    except Exception as e:
        # The picture is still useful without its data.
        print("the figure's data could not be read: %s: %s" % (type(e).__name__, e), file=sys.stderr)
        chart = None
    if chart is not None:
        found["e2b/chart"] = chart
    return found
