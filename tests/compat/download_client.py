"""Downloads the version in force of the only skill, with the package of a vendor: python3 download_client.py VENDOR URL"""

import hashlib
import importlib
import sys

VENDOR, URL = sys.argv[1:]

if VENDOR == "anthropic":
    api = importlib.import_module("anthropic").Anthropic(api_key="keeper", base_url=f"{URL}/compat/anthropic/a/demo")
    skills = api.beta.skills
    [skill] = skills.list()
    if hasattr(skills.versions, "download"):
        archive = skills.versions.download("latest", skill_id=skill.id).read()
    else:
        # Packages of before have no way of their own, but one to ask for anything, by the library below them.
        httpx = importlib.import_module("httpx")
        path = f"/v1/skills/{skill.id}/versions/latest/content"
        archive = api.get(path, cast_to=httpx.Response).content
else:
    api = importlib.import_module("openai").OpenAI(api_key="keeper", base_url=f"{URL}/compat/openai/a/demo/v1")
    [skill] = api.skills.list()
    archive = api.skills.versions.content.retrieve("latest", skill_id=skill.id).read()
    assert api.skills.content.retrieve(skill.id).read() == archive

assert archive[:2] == b"PK"
print("digest", hashlib.sha256(archive).hexdigest())
print("done")
