"""Everything that the package `anthropic` has for skills, at the door of a service: python3 anthropic_client.py URL"""

import hashlib
import inspect
import io
import sys
import zipfile

import anthropic

URL = sys.argv[1]
HEADER = b"---\nname: %s\ndescription: Counts lines.\n---\n"


def client(base, token, **more):
    return anthropic.Anthropic(api_key=token, base_url=f"{URL}/compat/anthropic{base}", max_retries=0, **more)


def files(text, name="数据统计"):
    return [
        (f"{name}/SKILL.md", HEADER % name.encode(), "text/markdown"),
        (f"{name}/scripts/run.sh", b"#!/bin/sh\necho " + text, "text/x-sh"),
        (f"{name}/empty", b"", "text/plain"),
    ]


def packed(text, name):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for path, content, _ in files(text, name):
            archive.writestr(path, content)
    return held.getvalue()


def whole(answer):
    """Every field that a typed object must have is there."""
    fields = getattr(type(answer), "model_fields", {})
    for name, field in fields.items():
        assert not field.is_required() or name in answer.model_fields_set, f"{type(answer).__name__}.{name}"
    assert answer.model_dump()
    return answer


def raises(kind, call, *args, **named):
    try:
        call(*args, **named)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def downloaded(skills, skill_id, version):
    """The ZIP of a version, where the package can fetch it; the older ones cannot."""
    download = getattr(skills.versions, "download", None)
    return download(version, skill_id=skill_id).read() if download else None


def everything(api, skills):
    title = "display_title" if "display_title" in inspect.signature(skills.create).parameters else "display_name"
    latest = "latest_version" if title == "display_title" else "latest_version_id"
    of_version = lambda v: v.version if title == "display_title" else v.id  # noqa: E731
    made = whole(skills.create(files=files(b"1"), **{title: "统计"}))
    assert getattr(made, title) == "统计" and made.id.startswith("skill_")
    again = raises(anthropic.BadRequestError, skills.create, files=files(b"1"), **{title: "x"})
    assert again.body["error"]["details"]["error_code"] == "already_exists", again.body
    other = whole(skills.create(files=[("other.zip", packed(b"1", "other"), "application/zip")], **{title: "o"}))
    assert whole(skills.retrieve(made.id)).id == made.id
    assert [each.id for each in skills.list(limit=1)] == [other.id, made.id]
    first = getattr(made, latest)
    second = whole(skills.versions.create(made.id, files=files(b"2")))
    assert second.name == "数据统计" and second.description == "Counts lines."
    assert whole(skills.versions.create(made.id, files=files(b"2"))).id == second.id
    assert len(list(skills.versions.list(made.id, limit=1))) == 2
    assert getattr(skills.retrieve(made.id), latest) == of_version(second)
    assert skills.versions.retrieve("latest", skill_id=made.id).id == second.id
    wrong = raises(anthropic.BadRequestError, skills.versions.create, made.id, files=files(b"1", "third"))
    assert "keeps its name" in str(wrong)
    archive = downloaded(skills, made.id, of_version(second))
    if archive is not None:
        with zipfile.ZipFile(io.BytesIO(archive)) as held:
            assert held.read("数据统计/scripts/run.sh").endswith(b"echo 2")
            assert {name.split("/")[0] for name in held.namelist()} == {"数据统计"}
        assert downloaded(skills, made.id, "latest") == archive
        print("digest", hashlib.sha256(archive).hexdigest())
    raises(anthropic.BadRequestError, skills.versions.delete, of_version(second), skill_id=made.id)
    assert whole(skills.versions.delete(first, skill_id=made.id)).id == first
    raises(anthropic.NotFoundError, skills.versions.retrieve, first, skill_id=made.id)
    skills.versions.delete(of_version(second), skill_id=made.id)
    # Older scripts go on to remove the skill that went with its last version.
    assert whole(skills.delete(made.id)).id == made.id
    raises(anthropic.NotFoundError, skills.retrieve, made.id)
    assert whole(skills.delete(other.id)).id == other.id
    never = f"skill_{'0' * 32}"
    raises(anthropic.NotFoundError, skills.delete, never)


def views(api):
    """What is for all users, and what a user makes of it."""
    skills = client("/u/alice/a/demo", "alice").beta.skills
    shared = api.beta.skills.create(files=files(b"1"))
    seen = skills.retrieve(shared.id)
    source = lambda skill: getattr(skill.source, "type", skill.source)  # noqa: E731
    assert source(seen) in ("plugin", "anthropic"), seen
    own = skills.versions.create(shared.id, files=files(b"mine"))
    changed = skills.retrieve(shared.id)
    assert source(changed) == "custom" and changed != seen
    assert skills.versions.retrieve("latest", skill_id=shared.id).id == own.id
    assert api.beta.skills.versions.retrieve("latest", skill_id=shared.id).id != own.id
    own_name = getattr(own, "version", None) or own.id
    assert len(list(skills.versions.list(shared.id))) == 2
    # A version that a user's changes began with stays; the client is told so once, although it would ask three times.
    began = api.beta.skills.versions.retrieve("latest", skill_id=shared.id)
    api.beta.skills.versions.create(shared.id, files=files(b"2"))
    patient, asked = client("/a/demo", "keeper"), []
    patient = patient.with_options(max_retries=2)
    send = patient._client.send
    patient._client.send = lambda *args, **named: (asked.append(1), send(*args, **named))[1]
    began = getattr(began, "version", None) or began.id
    raises(anthropic.ConflictError, patient.beta.skills.versions.delete, began, skill_id=shared.id)
    assert len(asked) == 1, asked
    base = api.beta.skills.versions.retrieve("latest", skill_id=shared.id)
    raises(
        anthropic.PermissionDeniedError,
        skills.versions.delete,
        getattr(base, "version", None) or base.id,
        skill_id=shared.id,
    )
    skills.versions.delete(own_name, skill_id=shared.id)
    assert source(skills.retrieve(shared.id)) == source(seen)
    api.beta.skills.versions.delete(began, skill_id=shared.id)
    for base, token in (("/u/bob/a/demo", "alice"), ("/a/demo", "alice"), ("/u/alice/a/other", "alice")):
        raises(anthropic.NotFoundError, client(base, token).beta.skills.retrieve, shared.id)
    raises(anthropic.AuthenticationError, client("/a/demo", "nobody").beta.skills.list)
    raises(anthropic.PermissionDeniedError, client("/a/demo", "engine").beta.skills.delete, shared.id)
    api.beta.skills.delete(shared.id)


keeper = client("/a/demo", "keeper")
everything(keeper, keeper.beta.skills)
if hasattr(keeper, "skills"):
    everything(keeper, keeper.skills)
everything(keeper, client("/a/demo", None, auth_token="keeper").beta.skills)
views(keeper)
print("done")
