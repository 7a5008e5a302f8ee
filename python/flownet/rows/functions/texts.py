# Generated from the registry in rust/flownet-rows/src/expr/functions by `make functions`. Do not edit.
"""Functions of strings."""

from __future__ import annotations

from ..calls import Calls, E, check_bounds


class TextFunctions(Calls[E]):
    """Functions of strings."""

    __slots__ = ()

    def len_chars(self) -> E:
        """Count the characters.

        The result is an ``int64``.

        Example: ``fn.lit('größe').str.len_chars()`` is ``5``.
        """
        return self._call("str.len_chars")

    def len_bytes(self) -> E:
        """Count the bytes of UTF-8.

        The result is an ``int64``.

        Example: ``fn.lit('größe').str.len_bytes()`` is ``7``.
        """
        return self._call("str.len_bytes")

    def to_lowercase(self) -> E:
        """Convert all letters to lower case.

        The result is a ``utf8``.

        Example: ``fn.lit('Ab').str.to_lowercase()`` is ``'ab'``.
        """
        return self._call("str.to_lowercase")

    def to_uppercase(self) -> E:
        """Convert all letters to upper case.

        The result is a ``utf8``.

        Example: ``fn.lit('Ab').str.to_uppercase()`` is ``'AB'``.
        """
        return self._call("str.to_uppercase")

    def initcap(self) -> E:
        """Capitalize each word.

        Words are runs of letters and digits; other letters become lower case.

        The result is a ``utf8``.

        Example: ``fn.lit('hello WORLD-wide').str.initcap()`` is ``'Hello World-Wide'``.
        """
        return self._call("str.initcap")

    def strip_chars(self) -> E:
        """Remove white space from both ends.

        The result is a ``utf8``.

        Example: ``fn.lit(' a b ').str.strip_chars()`` is ``'a b'``.
        """
        return self._call("str.strip_chars")

    def strip_chars_start(self) -> E:
        """Remove white space from the start.

        The result is a ``utf8``.

        Example: ``fn.lit(' a ').str.strip_chars_start()`` is ``'a '``.
        """
        return self._call("str.strip_chars_start")

    def strip_chars_end(self) -> E:
        """Remove white space from the end.

        The result is a ``utf8``.

        Example: ``fn.lit(' a ').str.strip_chars_end()`` is ``' a'``.
        """
        return self._call("str.strip_chars_end")

    def starts_with(self, prefix: str | E | None) -> E:
        """Return true if the string starts with another one.

        The result is a ``bool``.

        Example: ``fn.lit('abc').str.starts_with('ab')`` is ``True``.
        """
        return self._call("str.starts_with", prefix)

    def ends_with(self, suffix: str | E | None) -> E:
        """Return true if the string ends with another one.

        The result is a ``bool``.

        Example: ``fn.lit('abc').str.ends_with('bc')`` is ``True``.
        """
        return self._call("str.ends_with", suffix)

    def slice(self, offset: int, length: int | None = None) -> E:
        """Return characters from an offset on.

        A negative offset counts from the end. Without ``length`` they are all.

        The result is a ``utf8``.

        Example: ``fn.lit('größe').str.slice(-3, 2)`` is ``'öß'``.
        """
        check_bounds(f"str.slice({offset!r}, {length!r})", length, 0, None, "a length is not below 0")
        return self._call("str.slice", offset, length)

    def left(self, count: int | E | None) -> E:
        """Return the first characters.

        A negative count leaves out as many at the end.

        The result is a ``utf8``.

        Example: ``fn.lit('größe').str.left(3)`` is ``'grö'``.
        """
        return self._call("str.left", count)

    def right(self, count: int | E | None) -> E:
        """Return the last characters.

        A negative count leaves out as many at the start.

        The result is a ``utf8``.

        Example: ``fn.lit('größe').str.right(2)`` is ``'ße'``.
        """
        return self._call("str.right", count)

    def lpad(self, length: int | E | None, fill: str | E | None) -> E:
        """Fill up on the left to a length.

        Longer strings lose their last characters. An empty ``fill`` is an error where it is needed.

        The result is a ``utf8``.

        Example: ``fn.lit('7').str.lpad(3, '0')`` is ``'007'``.
        """
        return self._call("str.lpad", length, fill)

    def rpad(self, length: int | E | None, fill: str | E | None) -> E:
        """Fill up on the right to a length.

        Longer strings lose their last characters. An empty ``fill`` is an error where it is needed.

        The result is a ``utf8``.

        Example: ``fn.lit('ab').str.rpad(5, '.')`` is ``'ab...'``.
        """
        return self._call("str.rpad", length, fill)

    def repeat(self, count: int | E | None) -> E:
        """Repeat the string.

        A count of zero or less gives an empty string.

        The result is a ``utf8``.

        Example: ``fn.lit('ab').str.repeat(2)`` is ``'abab'``.
        """
        return self._call("str.repeat", count)

    def reverse(self) -> E:
        """Reverse the characters.

        A combining character moves away from its letter.

        The result is a ``utf8``.

        Example: ``fn.lit('abc').str.reverse()`` is ``'cba'``.
        """
        return self._call("str.reverse")

    def position(self, part: str | E | None) -> E:
        """Return the position of a string, counted from 1.

        It is 0 if there is none.

        The result is an ``int64``.

        Example: ``fn.lit('größe').str.position('ß')`` is ``4``.
        """
        return self._call("str.position", part)

    def translate(self, characters: str, replacements: str) -> E:
        """Replace single characters by others.

        Those without a replacement are removed.

        The result is a ``utf8``.

        Example: ``fn.lit('a-b c').str.translate('- ', '_')`` is ``'a_bc'``.
        """
        return self._call("str.translate", characters, replacements)

    def split(self, by: str) -> E:
        """Split the string by another one into a list.

        The result is a ``list[utf8]``.

        Example: ``fn.lit('a,b').str.split(',')`` is ``['a', 'b']``.
        """
        return self._call("str.split", by)

    def split_part(self, by: str, index: int | E | None) -> E:
        """Return one part of the split string, counted from 1.

        A negative index counts from the end; a part that is missing is empty. Zero is an error.

        The result is a ``utf8``.

        Example: ``fn.lit('a,b,c').str.split_part(',', -1)`` is ``'c'``.
        """
        return self._call("str.split_part", by, index)

    def ascii(self) -> E:
        """Return the code point of the first character.

        It is 0 for an empty string.

        The result is an ``int64``.

        Example: ``fn.lit('A').str.ascii()`` is ``65``.
        """
        return self._call("str.ascii")

    def contains(self, pattern: str, *, literal: bool = False) -> E:
        """Return true if a regular expression matches.

        With ``literal`` it is a string to find.

        The result is a ``bool``.

        Example: ``fn.lit('a1').str.contains('[0-9]')`` is ``True``.
        """
        return self._call("str.contains", pattern, literal=literal)

    def like(self, pattern: str) -> E:
        """Return true if the whole string matches a pattern of SQL.

        ``%`` matches any characters, ``_`` one, and a backslash takes the next character literally.

        The result is a ``bool``.

        Example: ``fn.lit('report.csv').str.like('r%.csv')`` is ``True``.
        """
        return self._call("str.like", pattern)

    def ilike(self, pattern: str) -> E:
        """Return true if the string matches a pattern of SQL.

        Case is ignored; ``like`` explains the pattern.

        The result is a ``bool``.

        Example: ``fn.lit('Report').str.ilike('r%')`` is ``True``.
        """
        return self._call("str.ilike", pattern)

    def count_matches(self, pattern: str) -> E:
        """Count the matches of a regular expression.

        The result is an ``int64``.

        Example: ``fn.lit('a1b22').str.count_matches('[0-9]+')`` is ``2``.
        """
        return self._call("str.count_matches", pattern)

    def replace(self, pattern: str, value: str, *, literal: bool = False) -> E:
        """Replace the first match of a regular expression.

        ``$1`` in the value is its first group. With ``literal`` it is a string to find.

        The result is a ``utf8``.

        Example: ``fn.lit('a1b2').str.replace('[0-9]', '-')`` is ``'a-b2'``.
        """
        return self._call("str.replace", pattern, value, literal=literal)

    def replace_all(self, pattern: str, value: str, *, literal: bool = False) -> E:
        """Replace all matches of a regular expression.

        ``$1`` in the value is its first group. With ``literal`` it is a string to find.

        The result is a ``utf8``.

        Example: ``fn.lit('a1b2').str.replace_all('[0-9]', '-')`` is ``'a-b-'``.
        """
        return self._call("str.replace_all", pattern, value, literal=literal)

    def extract(self, pattern: str, group: int = 1) -> E:
        """Return a group of the first match of a regular expression.

        It is null if nothing matches.

        The result is a ``utf8``.

        Example: ``fn.lit('id=42').str.extract('id=([0-9]+)')`` is ``'42'``.
        """
        check_bounds(f"str.extract({pattern!r}, {group!r})", group, 0, None, "a group is not below 0")
        return self._call("str.extract", pattern, group)

    def extract_all(self, pattern: str) -> E:
        """Return all matches of a regular expression as a list.

        The result is a ``list[utf8]``.

        Example: ``fn.lit('a1b22').str.extract_all('[0-9]+')`` is ``['1', '22']``.
        """
        return self._call("str.extract_all", pattern)

    def md5(self) -> E:
        """Return the MD5 digest of the UTF-8 in hexadecimal.

        Attackers can make two strings with one digest.

        The result is a ``utf8``.

        Example: ``fn.lit('abc').str.md5()`` is ``'900150983cd24fb0d6963f7d28e17f72'``.
        """
        return self._call("str.md5")

    def sha256(self) -> E:
        """Return the SHA-256 digest of the UTF-8 in hexadecimal.

        The result is a ``utf8``.

        Example: ``fn.lit('').str.sha256()`` is
        ``'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'``.
        """
        return self._call("str.sha256")
