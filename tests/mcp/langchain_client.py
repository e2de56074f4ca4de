"""Uses a workspace by LangChain's adapters: `langchain_client.py URL`, or `langchain_client.py PROGRAM ARGUMENTS` over standard input
and output; the token is in `FILESECBOX_TOKEN`."""

import asyncio
import os
import sys
from types import SimpleNamespace

from langchain_mcp_adapters.client import MultiServerMCPClient
from steps import take


class Tools:
    """The adapters' tools and resources, by the calls that `take` makes."""

    def __init__(self, client, tools):
        self.client, self.tools = client, tools

    async def list_tools(self):
        return SimpleNamespace(tools=self.tools)

    async def call_tool(self, name, arguments):
        found = [tool for tool in self.tools if tool.name == name]
        if not found:
            raise LookupError(f"there is no tool {name}")
        message = await found[0].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
        text = message.content if isinstance(message.content, str) else message.content[0]["text"]
        data = (message.artifact or {}).get("structured_content")
        content = [SimpleNamespace(text=text)]
        return SimpleNamespace(content=content, isError=message.status == "error", structuredContent=data)

    async def list_resources(self):
        async with self.client.session("fsb") as session:
            return await session.list_resources()

    async def read_resource(self, uri):
        (blob,) = await self.client.get_resources("fsb", uris=[str(uri)])
        return SimpleNamespace(contents=[SimpleNamespace(text=blob.as_string())])


async def main(address, *arguments):
    token = os.environ["FILESECBOX_TOKEN"]
    if arguments:
        env = {"FILESECBOX_TOKEN": token}
        server = {"transport": "stdio", "command": address, "args": list(arguments), "env": env}
    else:
        headers = {"Authorization": f"Bearer {token}"}
        server = {"transport": "streamable_http", "url": address, "headers": headers}
    client = MultiServerMCPClient({"fsb": server})
    await take(Tools(client, await client.get_tools()), getattr)


asyncio.run(main(*sys.argv[1:]))
