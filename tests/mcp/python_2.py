"""Uses a workspace by version 2 of the official client: `python_2.py URL`, or `python_2.py PROGRAM ARGUMENTS` over standard input and
output; the token is in `FILESECBOX_TOKEN`."""

import asyncio
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from steps import take

NAMES = {"isError": "is_error", "structuredContent": "structured_content"}


async def use(server):
    async with Client(server) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        await take(client, lambda result, name: getattr(result, NAMES[name]))


async def main(address, *arguments):
    token = os.environ["FILESECBOX_TOKEN"]
    if arguments:
        env = {"FILESECBOX_TOKEN": token}
        await use(StdioServerParameters(command=address, args=list(arguments), env=env))
        return
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        await use(streamable_http_client(address, http_client=http))


asyncio.run(main(*sys.argv[1:]))
