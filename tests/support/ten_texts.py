"""Ten texts in five languages and code; nothing is imported here."""

TEXTS = (
    "The quick brown fox jumps over the lazy dog, and it's the dog's 1,234th day.",
    "A second text: again and again the same words, in another order of words.",
    "Der schnelle Fuchs springt über den faulen Hund; süße Äpfel kosten 3,50 €.",
    "Où est passé l'été ? Ça fait déjà 20 ans qu'on l'attend, là-bas, à côté.",
    "Быстрая лиса прыгает через ленивую собаку. И снова, и снова.",
    "素早い茶色の狐が、のろまな犬を飛び越える。漢字とかな。",
    "def f(x):\n    if x > 1024:\n        return x + 10.25\n\n    return f(x - 1)\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];  // again\r\n}\n",
    "  two spaces,\n\n\nlines, \ttabs and naïve ☃ 🎉 👩‍🚀 signs\u200b.",
    '{"key": [1, 2.5e-3, null], "text": "a \\"quoted\\" string"}',
)
