"""An agent of LangGraph in a seat: it plays every task that is served, with its own loop.

    make test-serve                        # builds .venv-serve, which has LangGraph
    .venv/bin/gem-ma serve configs/retail_scripted.yaml --seat assistant -n 5 \\
        agents.assistant.policy=main policies.main.model=transformers/MODEL
    .venv-serve/bin/python examples/with_langgraph.py http://127.0.0.1:8765

The tools of a turn are LangGraph's tools, and each use is a turn of the play. What the agent's
model samples comes from the policy of the seat, is on record, and is learned from with --train.
"""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from gem_ma.trainers.seat import Play, plays


def tool_of(play: Play, function: dict[str, Any]) -> StructuredTool:
    def use(**arguments: Any) -> str:
        return play.call(function["name"], arguments)

    schema = function["parameters"]
    return StructuredTool.from_function(
        use, name=function["name"], description=function["description"], args_schema=schema
    )


def main(address: str) -> None:
    for play in plays(address):
        model = ChatOpenAI(model="seat", base_url=play.base_url, api_key="none")  # type: ignore
        tools = [tool_of(play, tool["function"]) for tool in play.tools]
        agent = create_react_agent(model, tools)
        talk: list[Any] = []

        def answer(messages: list[Any], agent: Any = agent, talk: list[Any] = talk) -> str:
            talk[:] = agent.invoke({"messages": talk + messages}, {"recursion_limit": 200})[
                "messages"
            ]
            return talk[-1].content

        play.run(answer)
        print(f"{play.agent}: {play.end}, earned {play.earned:g}")


if __name__ == "__main__":
    main(sys.argv[1])
