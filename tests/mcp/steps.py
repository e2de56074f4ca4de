"""The steps that the client of either version takes. Its results have the same fields."""


async def take(client, attribute):
    """Lists the tools and calls them; `attribute` reads a field of a result by its name on the wire."""
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["Read", "Glob", "Grep", "Edit", "Shell", "Skill"], tools

    async def call(tool, is_error=False, **arguments):
        result = await client.call_tool(tool, arguments)
        assert bool(attribute(result, "isError")) == is_error, result
        return result.content[0].text, attribute(result, "structuredContent")

    path = "笔记/a.md"
    await call("Edit", path=path, mode="create", content="第一\n")
    await call("Edit", path=path, mode="replace", old_string="第一", new_string="第二")
    assert (await call("Read", path=path))[1]["text"] == "第二\n"
    assert (await call("Glob", pattern="**/*.md"))[1] == {"paths": [path], "truncated": False}
    assert len((await call("Grep", pattern="第"))[1]["matches"]) == 1
    data = (await call("Shell", command="cat a.md; exit 3", directory="笔记"))[1]
    assert (data["exit_code"], data["stdout"]) == (3, "第二\n"), data
    text, _ = await call("Read", is_error=True, path="none")
    assert "no such file" in text, text
    text, _ = await call("Skill", is_error=True, name="none")
    assert "not found" in text, text
    try:
        result = await client.call_tool("Nope", {})
    except Exception as error:
        assert "there is no tool" in str(error), error
    else:
        raise AssertionError(result)
    resources = (await client.list_resources()).resources
    assert [resource.name for resource in resources] == ["notes", path], resources
    contents = (await client.read_resource(resources[0].uri)).contents
    assert "about notes" in contents[0].text, contents
    contents = (await client.read_resource(resources[1].uri)).contents
    assert contents[0].text == "第二\n", contents
    print("done")
