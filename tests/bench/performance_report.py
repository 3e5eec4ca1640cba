"""What performance_table.py leaves behind: the sections of a page, and a JSON file that is never half written.

A page has its tables between the lines BEGIN and END: a line about the machine, then a section for each
row, which begins with a comment with the row's name and says when it was measured. A run of some rows
replaces their sections and keeps the others.
"""
import json
import os
import pathlib
import re
import stat
import tempfile

BEGIN, END = "<!-- measured -->", "<!-- end -->"
SECTION = re.compile(r"^<!-- row (\S+) -->$", re.M)
ELSEWHERE = "Measured on: "


class PageError(Exception):
    """One sentence: what is wrong with a file that is to be written."""


def markdown(lines, headings):
    def cell(text):
        return text.replace("|", "\\|").replace("\n", " ")

    table = [headings, ("---",) * len(headings)] + [line.cells for line in lines]
    return "\n".join("| " + " | ".join(map(cell, cells)) + " |" for cells in table)


def section(name, text):
    return f"<!-- row {name} -->\n{text.strip()}"


# --- The page ------------------------------------------------------------------------------------


class Page:
    """A page that is to have the tables. Errors: PageError, here and in write()."""

    def __init__(self, path):
        self.path = pathlib.Path(path).resolve()  # of a link, what it leads to
        self._parts()
        check_writable(self.path)

    def _parts(self):
        """The text before, between and after the two lines."""
        try:
            page = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise PageError(f"{self.path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise PageError(f"{self.path} is no UTF-8 text") from error
        begin, end = page.find(BEGIN), page.find(END)
        if page.count(BEGIN) != 1 or page.count(END) != 1 or end < begin:
            raise PageError(f"{self.path} needs one line {BEGIN} and, behind it, one line {END}")
        return page[:begin], page[begin + len(BEGIN):end], page[end:]

    def has_other_text(self):
        """Whether there are tables that belong to no row, so that nobody could say which of them to keep."""
        head = SECTION.split(self._parts()[1])[0]
        return "|" in head

    def write(self, head, measured, order, is_whole):
        """Puts the sections {name: text} there. The others stay, unless this `is_whole`."""
        before, between, after = self._parts()
        sections = {} if is_whole else kept_sections(between, head)
        sections.update(measured)
        names = [name for name in order if name in sections] + [name for name in sections if name not in order]
        text = "\n\n".join([head] + [section(name, sections[name]) for name in names])
        write_whole(self.path, f"{before}{BEGIN}\n\n{text}\n\n{after}")


def kept_sections(between, head):
    """{name: text}; where the page's line about the machine was another one, each section says so."""
    old_head, *pieces = SECTION.split(between)
    old_head = old_head.strip()
    sections = {}
    for name, text in zip(pieces[::2], pieces[1::2]):
        text = text.strip()
        if old_head and old_head != head and ELSEWHERE not in text:
            title, _, rest = text.partition("\n")
            text = f"{title}\n\n{ELSEWHERE}{old_head}\n{rest}"
        sections[name] = text
    return sections


# --- Files ---------------------------------------------------------------------------------------


def check_writable(path):
    """Errors: PageError where write_whole() would fail."""
    if path.exists() and (not path.is_file() or not os.access(path, os.W_OK)):
        raise PageError(f"{path} can't be written")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise PageError(f"{path} can't be written: its folder {path.parent} "
                        f"{'is read-only' if path.parent.is_dir() else 'is missing'}")


def write_whole(path, text):
    """The file has the old text or the new one, whatever happens meanwhile. Errors: PageError."""
    part = None
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(part, mode)
        os.replace(part, path)
        part = None
    except OSError as error:
        raise PageError(f"{path}: {error.strerror}") from error
    finally:
        if part is not None:
            os.unlink(part)


class Json:
    """Everything that was measured, written anew after each line. Errors: PageError, here and in write()."""

    def __init__(self, path):
        self.path = pathlib.Path(path).resolve()
        check_writable(self.path)

    def write(self, value):
        write_whole(self.path, json.dumps(value, indent=1) + "\n")
