"""Words that have an order, as low, medium and high."""

# Words in order, of which a target may have some.
_SCALES = (
    ("very low", "low", "medium", "high", "very high"),
    ("low", "moderate", "high"),
    ("low", "mid", "high"),
    ("tiny", "small", "medium", "large", "huge"),
    ("xs", "s", "m", "l", "xl", "xxl"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("very poor", "poor", "fair", "good", "very good", "excellent"),
    ("bad", "average", "good"),
    ("none", "mild", "moderate", "severe"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied"),
)


def known_scale(distinct: list[str], fewest: int = 3) -> list[str] | None:
    """Return the values in order, if all, and so many at least, are different words of one scale.

    Examples
    --------
    >>> known_scale(["High", "low", "medium"]), known_scale(["cold", "warm", "hot"])
    (['low', 'medium', 'High'], None)
    """
    lower = {value.lower().replace("_", " ").replace("-", " "): value for value in distinct}
    if len(lower) < max(fewest, len(distinct)):
        return None
    for scale in _SCALES:
        if set(lower) <= set(scale):
            return [lower[word] for word in scale if word in lower]
    return None
