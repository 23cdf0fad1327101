"""Tell the story; exit with 1 where it does not come out."""

from __future__ import annotations

import sys

from tests.demo import story

if __name__ == "__main__":
    sys.exit(story.main())
