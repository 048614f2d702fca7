"""The blocks of a Markdown page: which commands it has, what they should print, and which files it shows."""

import dataclasses
import re
import subprocess

RUN = {"sh", "console"}
# An id that is cut short, such as `01a1e10c-…`: any id, but the same one in the whole page.
CUT_ID = re.compile(r"([0-9a-f]{8}-…)")
WORD_WITH_GAP = re.compile(r"[\w./:@+-]*…[\w./:@+…-]*")


@dataclasses.dataclass
class Command:
    page: str
    line: int
    text: str
    expected: list  # lines; None where the page shows no output
    not_run: str = ""
    is_server: bool = False


@dataclasses.dataclass
class File:
    page: str
    line: int
    name: str
    text: str


class PageError(Exception):
    """A page that cannot be read as the rules in tests/docs/run say."""


def read(name, text):
    """The commands and files of a page, in their order."""
    found, comments, lines, n = [], {}, text.splitlines(), 0
    while n < len(lines):
        line = lines[n]
        if comment := re.fullmatch(r"<!-- (not run|file): (.+?) -->|<!-- (server) -->", line.strip()):
            kind = comment[1] or comment[3]
            comments[kind] = comment[2] or ""
        elif fence := re.match(r"( *)(`{3,})(\w*)", line):
            indent, marks, language = fence.groups()
            end = next((m for m in range(n + 1, len(lines)) if lines[m].strip() == marks), None)
            if end is None:
                raise PageError(f"{name}:{n + 1}: the block has no end")
            body = [one.removeprefix(indent) for one in lines[n + 1 : end]]
            found += block(name, n + 2, language, body, comments)
            comments, n = {}, end
        elif line.strip():
            if comments:
                raise PageError(f"{name}:{n + 1}: a comment for the test stands above no block: {comments}")
            if looks_like_a_command(line) and (n == 0 or not lines[n - 1].strip() or lines[n - 1].startswith("    ")):
                raise PageError(f"{name}:{n + 1}: a command outside of a block of sh or console: {line.strip()}")
        n += 1
    return found


def looks_like_a_command(line):
    return re.match(r" {4,}(\$ )?(nuncio|curl|cargo|npx|python3|scripts/)\b", line)


def block(page, line, language, body, comments):
    if "file" in comments:
        return [File(page, line, comments["file"], "\n".join(body) + "\n")]
    if language not in RUN:
        # Commands in a block without a language would not be run.
        if language == "" and any(re.match(r"(\$ )?(nuncio|curl|cargo) ", one) for one in body):
            raise PageError(f"{page}:{line}: commands in a block without a language")
        return []
    made = in_console(page, line, body) if language == "console" else in_script(page, line, body)
    for command in made:
        command.not_run = comments.get("not run", "")
        command.is_server = "server" in comments
    return made


def in_console(page, line, body):
    """Lines with `$ ` are commands (`> ` and a backslash continue one); what follows is what they print."""
    made = []
    for n, text in enumerate(body):
        last = made[-1] if made else None
        if text.startswith("$ "):
            made.append(Command(page, line + n, text[2:], None))
        elif last is None:
            raise PageError(f"{page}:{line + n}: output without a command")
        elif last.expected is None and (last.text.endswith("\\") or text.startswith("> ")):
            last.text += "\n" + text.removeprefix("> ")
        else:
            last.expected = (last.expected or []) + [text]
    for command in made:
        while command.expected and not command.expected[-1].strip():
            command.expected.pop()
        command.expected = command.expected or None
    return made


def in_script(page, line, body):
    """Each command of a script, over as many lines as the shell takes for it."""
    made, start, taken = [], 0, []
    for n, text in enumerate(body):
        if not taken and (not text.strip() or text.lstrip().startswith("#")):
            continue
        start = start if taken else n
        taken.append(text)
        if is_complete("\n".join(taken)):
            made.append(Command(page, line + start, "\n".join(taken), None))
            taken = []
    if taken:
        raise PageError(f"{page}:{line + start}: the shell does not take this: {' '.join(taken)}")
    return made


def is_complete(text):
    if text.endswith("\\"):
        return False
    checked = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, timeout=10)
    return checked.returncode == 0 and not checked.stderr


def pattern(expected, known):
    """What output has to look like: `…` stands for anything, alone on a line for any lines."""
    parts, names = [], {}
    for line in expected:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
            continue
        for n, piece in enumerate(CUT_ID.split(line)):
            parts.append(an_id(piece, known, names) if n % 2 else words(piece, names))
        parts.append(r"\n")
    return re.compile("^" + "".join(parts), re.MULTILINE), names


def an_id(cut, known, names):
    """An id that the page cuts short: any, but the same one wherever the page has it."""
    if cut in known:
        return re.escape(known[cut])
    for group, one in names.items():
        if one == cut:
            return f"(?P={group})"
    names[f"w{len(names)}"] = cut
    return f"(?P<w{len(names) - 1}>[0-9a-f]{{8}}-[0-9a-f-]{{20,}})"


def words(text, names):
    """A text in which a word with a gap is remembered, so that a later command of the page may name it."""
    regex, at = "", 0
    for word in WORD_WITH_GAP.finditer(text):
        regex += re.escape(text[at : word.start()])
        at = word.end()
        if word[0].strip("…") == "" or word[0] in names.values():
            regex += gaps(word[0])
        else:
            names[f"w{len(names)}"] = word[0]
            regex += f"(?P<w{len(names) - 1}>{gaps(word[0])})"
    return regex + re.escape(text[at:])


def gaps(text):
    return ".*?".join(re.escape(piece) for piece in text.split("…"))


def filled(text, known):
    """A command with the words that the page cut short, as they were printed before."""
    for word in sorted(known, key=len, reverse=True):
        text = text.replace(word, known[word])
    if "…" in re.sub(r"\s#.*", "", text):
        raise PageError(f"what was printed does not say what … stands for in: {text}")
    return text
