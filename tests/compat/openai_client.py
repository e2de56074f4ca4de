"""Everything that the package `openai` has for skills, at the door of a service: python3 openai_client.py URL"""

import io
import sys
import zipfile

import openai

URL = sys.argv[1]
HEADER = b"---\nname: %s\ndescription: Counts lines.\n---\n"


def client(base, token):
    return openai.OpenAI(api_key=token, base_url=f"{URL}/compat/openai{base}/v1", max_retries=0)


def files(text, name="数据统计"):
    return [(f"{name}/SKILL.md", HEADER % name.encode()), (f"{name}/run.sh", b"#!/bin/sh\necho " + text)]


def raises(kind, call, *args, **named):
    try:
        call(*args, **named)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def whole(answer):
    fields = getattr(type(answer), "model_fields", {})
    for name, field in fields.items():
        assert not field.is_required() or name in answer.model_fields_set, f"{type(answer).__name__}.{name}"
    assert answer.model_dump()
    return answer


def texts(answer):
    with zipfile.ZipFile(io.BytesIO(answer.read())) as held:
        return held.read("数据统计/run.sh")


keeper, alice = client("/a/demo", "keeper"), client("/u/alice/a/demo", "alice")
made = whole(keeper.skills.create(files=files(b"1")))
assert (made.default_version, made.latest_version, made.name) == ("1", "1", "数据统计"), made
assert raises(openai.BadRequestError, keeper.skills.create, files=files(b"1")).code == "already_exists"
raises(openai.BadRequestError, keeper.skills.create)
flat = [("SKILL.md", HEADER % b"flat"), ("run.sh", b"#!/bin/sh\n")]
other = whole(keeper.skills.create(files=flat))
assert other.name == "flat"
assert [each.id for each in keeper.skills.list(limit=1)] == [other.id, made.id]
assert [each.id for each in keeper.skills.list(limit=1, order="asc")] == [made.id, other.id]
# A version that is not the default changes nothing for users.
second = whole(keeper.skills.versions.create(made.id, files=files(b"2")))
now = whole(keeper.skills.retrieve(made.id))
assert (second.version, now.default_version, now.latest_version) == ("2", "1", "2"), now
assert texts(alice.skills.content.retrieve(made.id)).endswith(b"echo 1")
assert texts(keeper.skills.versions.content.retrieve("latest", skill_id=made.id)).endswith(b"echo 2")
set_to = whole(keeper.skills.update(made.id, default_version="2"))
assert (set_to.default_version, set_to.latest_version) == ("2", "2"), set_to
assert texts(alice.skills.content.retrieve(made.id)).endswith(b"echo 2")
assert whole(keeper.skills.update(made.id, default_version="1")).default_version == "1"
assert texts(alice.skills.content.retrieve(made.id)).endswith(b"echo 1")
third = whole(keeper.skills.versions.create(made.id, files=files(b"3"), default=True))
assert whole(keeper.skills.retrieve(made.id)).default_version == third.version
assert [each.version for each in keeper.skills.versions.list(made.id, limit=1)] == [third.version, "2", "1"]
assert whole(keeper.skills.versions.retrieve("2", skill_id=made.id)).id == second.id
raises(openai.NotFoundError, keeper.skills.versions.retrieve, "99", skill_id=made.id)
assert whole(keeper.skills.versions.delete("2", skill_id=made.id)).deleted
raises(openai.BadRequestError, keeper.skills.versions.delete, third.version, skill_id=made.id)
# A user's own state takes the place of the application's for that user alone.
own = whole(alice.skills.versions.create(made.id, files=files(b"mine")))
assert alice.skills.retrieve(made.id).default_version == own.version
assert texts(alice.skills.content.retrieve(made.id)).endswith(b"echo mine")
assert texts(keeper.skills.content.retrieve(made.id)).endswith(b"echo 3")
# What a user's changes began with is not removed: the client is told so once.
raises(openai.NotFoundError, client("/u/bob/a/demo", "alice").skills.retrieve, made.id)
raises(openai.AuthenticationError, client("/a/demo", "nobody").skills.list)
raises(openai.PermissionDeniedError, client("/a/demo", "engine").skills.delete, made.id)
assert whole(alice.skills.delete(made.id)).deleted
raises(openai.NotFoundError, alice.skills.retrieve, made.id)
assert whole(keeper.skills.delete(made.id)).id == made.id
assert whole(keeper.skills.delete(other.id)).deleted
assert list(keeper.skills.list()) == []
print("done")
