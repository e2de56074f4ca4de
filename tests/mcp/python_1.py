"""Uses a workspace by version 1 of the official client: `python_1.py URL`, or `python_1.py PROGRAM ARGUMENTS` over standard input and
output; the token is in `FILESECBOX_TOKEN`."""

import asyncio
import os
import sys

import httpx
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from steps import take


async def use(streams):
    async with streams as (read, write, *_):
        async with ClientSession(read, write) as client:
            begun = await client.initialize()
            assert begun.protocolVersion == "2025-11-25", begun
            await take(client, getattr)


async def main(address, *arguments):
    token = os.environ["FILESECBOX_TOKEN"]
    if arguments:
        env = {"FILESECBOX_TOKEN": token}
        await use(stdio_client(StdioServerParameters(command=address, args=arguments, env=env)))
        return
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        await use(streamable_http_client(address, http_client=http))


asyncio.run(main(*sys.argv[1:]))
