"""`gem-ma view`: run folders in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from gem_ma.cli.completion import run_names
from gem_ma.cli.runs import run_folder
from gem_ma.cli.terminal import emit, once
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.live.server import library, listen, serve
from gem_ma.pages.live.site import Site, write_bundle
from gem_ma.system.loopback import LOOPBACK

EXAMPLE = """\b
Examples:
  gem-ma view                    # all runs below runs/
  gem-ma view runs/kuhn-1 --open
  gem-ma view --bundle pages     # a folder of pages to pass on, without a server"""


@click.command(epilog=EXAMPLE)
@click.argument("run", shell_complete=run_names, required=False, metavar="[RUN|FOLDER]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: a free one]")
@click.option(
    "--scenario",
    metavar="NAME|FILE",
    help="One more scenario to play, and the code that judges and forks runs of it.",
)
@click.option("--trust", is_flag=True, help="Forks use the models, tools and code of a run.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the list of runs and their reports there, to open from a disk, and end.",
)
def command(
    run: str | None,
    port: int,
    scenario: str | None,
    trust: bool,
    opens: bool,
    bundle: Path | None,
) -> int:
    """Show runs in a browser: all episodes in lanes, tokens by advantage, a run while it is played.
    Type another action at a step, and the play goes on from there; or play an agent yourself. The
    server listens on this machine alone; Ctrl-C ends it."""
    folder = Path(run if run is not None else "runs")
    if bundle is not None:
        if (folder / "manifest.json").exists() or not folder.is_dir():
            raise ConfigError(f"{folder}: --bundle takes a folder of runs; of one: gem-ma report")
        emit(str(write_bundle(folder, bundle, once())))
        return 0
    library()  # before anything is said
    if run is None or (folder.is_dir() and not (folder / "manifest.json").exists()):
        site = Site(folder, scenario=scenario, trusted=trust)
        start = ""
    else:
        folder = run_folder(run).resolve()
        only = (folder.name,)
        start = f"run/{folder.name}"
        site = Site(folder.parent, only, scenario=scenario, trusted=trust)
    with listen(port) as bound:
        address = f"http://{LOOPBACK}:{bound.getsockname()[1]}/{start}"
        emit(f"{address}\nCtrl-C ends the viewer.")
        if opens:
            click.launch(address)
        serve(site, bound)
    return 0
