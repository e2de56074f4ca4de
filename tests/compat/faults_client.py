"""What a package makes of requests that fail: python3 faults_client.py PACKAGE URL

The header `x-fate` says to what stands between what becomes of a request. The skill `kept` is there, a user's changes began with its
first version, and a user's room has one MiB."""

import importlib
import sys

PACKAGE, URL = sys.argv[1:]
HEADER = b"---\nname: %s\ndescription: Counts lines.\n---\n"
vendor = importlib.import_module(PACKAGE)


def skills(fate, base="/a/demo", token="keeper"):
    headers = {"x-fate": fate}
    url = f"{URL}/compat/{PACKAGE}{base}"
    if PACKAGE == "anthropic":
        return vendor.Anthropic(api_key=token, base_url=url, default_headers=headers).beta.skills
    return vendor.OpenAI(api_key=token, base_url=f"{url}/v1", default_headers=headers).skills


def files(name, content):
    return [(f"{name}/SKILL.md", HEADER % name.encode()), (f"{name}/data", content)]


def raises(status, call, *args, **named):
    try:
        call(*args, **named)
    except vendor.APIStatusError as error:
        assert error.status_code == status, error
        return f"{error} {error.body}"
    raise AssertionError(f"no {status}")


whole = skills("pass")

# The service has done it when the connection breaks: the package sends it again.
cut = skills("cut")
assert "already_exists" in raises(400, cut.create, files=files("once", b"1"))
assert [each.id for each in whole.list()].count(whole.retrieve("once").id) == 1
assert len(list(whole.versions.list("once"))) == 1
at_once = {"default": True} if PACKAGE == "openai" else {}
second = cut.versions.create("once", files=files("once", b"2"), **at_once)
assert [each.id for each in whole.versions.list("once")][0] == second.id
assert len(list(whole.versions.list("once"))) == 2

# What no repetition helps.
first = list(whole.versions.list("kept"))[-1]
raises(409, skills("final").versions.delete, getattr(first, "version", None) or first.id, skill_id="kept")
full = skills("final", "/u/alice/a/demo", "alice")
assert "quota" in raises(507, full.create, files=files("large", bytes(2 << 20)))

# What a repetition may help.
raises(503, skills("unavailable").list)
print("done")
