"""Uses a workspace by version 1 of the official client: `python_1.py URL`, the token in `TOKEN`."""

import asyncio
import os
import sys

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from steps import take


async def main(url):
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, *_):
            async with ClientSession(read, write) as client:
                begun = await client.initialize()
                assert begun.protocolVersion == "2025-11-25", begun
                await take(client, getattr)


asyncio.run(main(sys.argv[1]))
