"""A multipart/form-data body (RFC 7578): fields and files from templates, rendered for each sample before the run.

The boundary is one for all samples, so that the request's head is too. A file's name is a template as well: the file is read
when the sample is encoded. It streams nothing.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._http.body_template import BodyTemplate
from plimsoll.scenarios.samples.payload import Payload


class MultipartForm:
    """Fields (name -> template of the value) and files (name -> template of the path). Raises ValueError for a bad template."""

    __slots__ = ("_boundary", "_fields", "_files", "content_type")

    def __init__(self, fields: Mapping[str, str], files: Mapping[str, str]) -> None:
        for name in (*fields, *files):
            if not name or any(char in name for char in '\r\n"'):
                raise ValueError(f"{name!r} can't be the name of a field. Leave out quotes and line ends")
        self._fields = {name: BodyTemplate(text, f"target.options.form.{name}") for name, text in fields.items()}
        self._files = {name: BodyTemplate(text, f"target.options.form_files.{name}") for name, text in files.items()}
        said = repr((sorted(fields.items()), sorted(files.items())))
        self._boundary = b"plimsoll-" + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:32].encode()
        self.content_type = f"multipart/form-data; boundary={self._boundary.decode()}"

    def render(self, payload: Payload, model: str) -> bytes:
        """The body for a payload. Raises HarnessFault for a template that fails and for a file that can't be read."""
        parts = [self._part(name, template.render(payload, model)) for name, template in self._fields.items()]
        parts += [self._file(name, template.render(payload, model)) for name, template in self._files.items()]
        return b"".join(parts) + b"--%b--\r\n" % self._boundary

    def _file(self, name: str, rendered: bytes) -> bytes:
        path = Path(rendered.decode())
        try:
            data = files.read_bytes(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise HarnessFault(
                f"target.options.form_files.{name}: can't read {path}: {reason}. Check the path (it is relative to the working "
                "directory)"
            ) from None
        media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        shown = path.name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        return self._part(name, data, f'; filename="{shown}"\r\ncontent-type: {media}')

    def _part(self, name: str, data: bytes, more: str = "") -> bytes:
        if self._boundary in data:
            raise HarnessFault(f"target.options.form: {name} holds the form's own boundary. Rename a field")
        return form_part(self._boundary, name, data, more)


def form_part(boundary: bytes, name: str, data: bytes, more: str = "") -> bytes:
    """One part of a form: ``more`` is what else its headers say, from the semicolon after the name on."""
    head = f'content-disposition: form-data; name="{name}"{more}'.encode()
    return b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, data)
