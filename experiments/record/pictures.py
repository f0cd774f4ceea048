"""Pictures small enough to be kept in a repository."""

from pathlib import Path

MOST_BYTES = 150 * 1024
COLOURS = 128


def copy_small(source: Path, target: Path, most_bytes: int = MOST_BYTES) -> None:
    """Write a PNG of at most `most_bytes`: with a palette if need be, and smaller if it must be.

    Lines and text of a plot lose nothing by a palette of 128 colours; photographs do.
    """
    from PIL import Image  # comes with matplotlib

    if source.stat().st_size <= most_bytes:
        target.write_bytes(source.read_bytes())
        return
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    while True:
        picture.quantize(COLOURS).save(target, format="PNG", optimize=True)
        if target.stat().st_size <= most_bytes:
            return
        width, height = picture.size
        picture = picture.resize((int(0.85 * width), int(0.85 * height)), Image.Resampling.LANCZOS)
