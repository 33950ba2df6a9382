"""How feature files look inside: for every suffix one function from an open file to what it holds.

Each function tells dtype and shape without reading the array, and how to read it. Nothing is ever
unpickled, and nothing outside the file is read.
"""

from pipeline.formats.contents import Contents, Opened, Space
from pipeline.formats.registry import contents_of, format_of

__all__ = ["Contents", "Opened", "Space", "contents_of", "format_of"]
