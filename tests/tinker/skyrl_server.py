"""SkyRL's Tinker server on a CPU, started as a program of this environment.

`python skyrl_server.py api ARGUMENTS` is the server; it starts `... engine ARGUMENTS` beside
itself. Two things of SkyRL 0.3.0 are bent: it would start its engine through uv, and it takes a
TypedDict that pydantic reads on Python 3.12 alone.
"""

import runpy
import sys
import typing

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # before skyrl is imported


def serve() -> None:
    """The API on --host and --port, as `python -m skyrl.tinker.api` with another engine command."""
    import uvicorn
    from skyrl.tinker import api, config

    api._build_uv_run_cmd_engine = lambda parent, settings: [
        sys.executable,
        __file__,
        "engine",
        *config.config_to_argv(settings),
    ]
    import argparse

    parser = argparse.ArgumentParser()
    config.add_model(parser, config.EngineConfig)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    read = vars(parser.parse_args())
    fields = config.EngineConfig.model_fields
    settings = {name: value for name, value in read.items() if name in fields}
    api.app.state.engine_config = config.EngineConfig.model_validate(settings)
    uvicorn.run(api.app, host=read["host"], port=read["port"], log_level="warning")


if __name__ == "__main__":
    part = sys.argv.pop(1)
    if part == "api":
        serve()
    else:
        runpy.run_module("skyrl.tinker.engine", run_name="__main__", alter_sys=True)
