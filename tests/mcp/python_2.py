"""Uses a workspace by version 2 of the official client: `python_2.py URL`, the token in `TOKEN`."""

import asyncio
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from steps import take

NAMES = {"isError": "is_error", "structuredContent": "structured_content"}


async def main(url):
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            assert client.protocol_version == "2026-07-28", client.protocol_version
            await take(client, lambda result, name: getattr(result, NAMES[name]))


asyncio.run(main(sys.argv[1]))
