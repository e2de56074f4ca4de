"""Uses a workspace by the MCP clients of the OpenAI Agents SDK: `openai_agents_client.py URL`, or `openai_agents_client.py PROGRAM
ARGUMENTS` over standard input and output; the token is in `FILESECBOX_TOKEN`."""

import asyncio
import os
import sys
from types import SimpleNamespace

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from steps import take

NAMES = {"isError": "is_error", "structuredContent": "structured_content"}


class Listed:
    """A server of the SDK, whose list of tools has no other fields around it."""

    def __init__(self, server):
        self.server = server
        self.call_tool = server.call_tool
        self.list_resources = server.list_resources

    async def list_tools(self):
        return SimpleNamespace(tools=await self.server.list_tools())

    async def read_resource(self, uri):
        return await self.server.read_resource(str(uri))


def attribute(result, name):
    """Either version of the package below has its own names."""
    return getattr(result, name, None) if hasattr(result, name) else getattr(result, NAMES[name])


async def main(address, *arguments):
    token = os.environ["FILESECBOX_TOKEN"]
    if arguments:
        params = {"command": address, "args": list(arguments), "env": {"FILESECBOX_TOKEN": token}}
        server = MCPServerStdio(params=params, client_session_timeout_seconds=300)
    else:
        params = {"url": address, "headers": {"Authorization": f"Bearer {token}"}}
        server = MCPServerStreamableHttp(params=params, client_session_timeout_seconds=300)
    async with server:
        await take(Listed(server), attribute)


asyncio.run(main(*sys.argv[1:]))
