"""Uses the client that openapi-python-client made of the document, as a newcomer would: ADDRESS and TOKEN are its arguments."""

import io
import sys
import zipfile

from filesecbox_client import AuthenticatedClient
from filesecbox_client.api.changing import edit_text_in_workspace, move_entry_in_workspace, replace_text_in_workspace
from filesecbox_client.api.changing import write_bytes_in_workspace
from filesecbox_client.api.reading import read_bytes_in_workspace, read_text_in_workspace, search_lines_in_workspace
from filesecbox_client.api.running import execute_in_workspace, run_in_skill, run_in_workspace
from filesecbox_client.api.service import get_info
from filesecbox_client.api.skills import download_skill, list_skills, upload_skills
from filesecbox_client.models import LineRun, MoveEntryInWorkspaceBody, NotFound, ProgramRun, ProgramRunInSkill
from filesecbox_client.models import ReplaceTextInWorkspaceBody, ReplaceTextInWorkspaceBodyEditsItem
from filesecbox_client.models import SearchLinesInWorkspaceBody, UploadSkillsFilesBody
from filesecbox_client.types import File

address, token = sys.argv[1:]
client = AuthenticatedClient(base_url=address, token=token)
tree = {"u": "张三", "a": "demo", "client": client}


def packed(name, text):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr(f"{name}/SKILL.md", f"---\nname: {name}\ndescription: Counts.\n---\n{text}\n")
    return archive.getvalue()


assert get_info.sync(client=client).data.network in ("none", "proxy", "host")

form = UploadSkillsFilesBody(file=[File(payload=io.BytesIO(packed("count", "a")), file_name="count.zip")])
assert upload_skills.sync(**tree, body=form, scope="baseline").result.skills[0].skill_id == "count"
plain = File(payload=packed("more", "b"))
assert upload_skills.sync(**tree, body=plain, scope="overlay").result.skills[0].skill_id == "more"
assert [skill.skill_id for skill in list_skills.sync(**tree).data] == ["count", "more"]
archive = download_skill.sync(**tree, s="count").payload.read()
assert zipfile.ZipFile(io.BytesIO(archive)).namelist()

assert edit_text_in_workspace.sync(**tree, body=File(payload=b"one\ntwo\n"), path="n.txt").created
assert read_text_in_workspace.sync(**tree, path="n.txt").data == "one\ntwo\n"
assert read_text_in_workspace.sync(**tree, path="n.txt", start=2).data == ["two"]
edit = ReplaceTextInWorkspaceBodyEditsItem(old_string="two", new_string="三")
assert replace_text_in_workspace.sync(**tree, body=ReplaceTextInWorkspaceBody(path="n.txt", edits=[edit])).size == 8
again = write_bytes_in_workspace.sync_detailed(**tree, path="n.txt", body=File(payload=b""), if_none_match="*")
assert again.status_code == 412 and again.parsed.code == "stale" and "exists already" in again.parsed.data
moved = MoveEntryInWorkspaceBody(from_="n.txt", to="m.txt")
assert move_entry_in_workspace.sync(**tree, body=moved).status == "success"
assert read_bytes_in_workspace.sync(**tree, path="m.txt").payload.read() == "one\n三\n".encode()
found = search_lines_in_workspace.sync(**tree, body=SearchLinesInWorkspaceBody(pattern="^三$"))
assert [match.line for match in found.data] == [2]
assert isinstance(read_text_in_workspace.sync(**tree, path="n.txt"), NotFound)

ran = run_in_workspace.sync(**tree, body=ProgramRun(command="cat", args=["m.txt"]))
assert ran.data.stdout == "one\n三\n" and ran.data.exit_code == 0, ran
ran = run_in_workspace.sync(**tree, body=LineRun(shell="echo $GREETING | tr a-z A-Z; exit 3"))
assert ran.data.exit_code == 3, ran
ran = run_in_skill.sync(**tree, s="count", body=ProgramRunInSkill(command="ls"))
assert "SKILL.md" in ran.data.stdout, ran
assert "one" in execute_in_workspace.sync(**tree, command="cat", body=["m.txt"]).data
print("all of it works")
