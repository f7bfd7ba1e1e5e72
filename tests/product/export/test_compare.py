"""When an exported model is the same, and when it is not."""

import types

import numpy as np
import pytest

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.lm.export import compare, stock
from tests.support.hub_models import tiny_backbone


class TestCompare:
    @staticmethod
    def subject(table, shift=0.0, greedy=None):
        """Logits that depend on the last token alone."""

        def logits(ids):
            return table[ids] + shift

        return compare.Subject(logits, greedy or compare.subject_of(logits).greedy)

    def table(self):
        return np.random.default_rng(1).normal(size=(12, 12))

    def test_match(self):
        table = self.table()
        match = compare.compare(
            self.subject(table), self.subject(table, 1e-6), 12, 1e-5
        )
        assert match.difference == pytest.approx(1e-6, rel=1e-3)
        assert match.allowed == pytest.approx(1e-5 * np.abs(table).max())
        assert match.tokens == 2 * compare.NUM_TOKENS
        assert "within 1.0e-06" in str(match)

    @pytest.mark.parametrize("shift", [1e-3, np.nan, np.inf])
    def test_other_logits(self, shift):
        table = self.table()
        with pytest.raises(ExportFailed, match="computes other logits"):
            compare.compare(self.subject(table), self.subject(table, shift), 12, 1e-5)

    def test_a_share_of_the_tokens(self):
        table = self.table()
        other = table + 0
        other[:6] *= -1  # half of the tokens
        right = self.subject(table)
        match = compare.compare(right, self.subject(other), 12, 1e-5, share=0.1)
        assert match.difference == 0 and match.tokens < 2 * compare.NUM_TOKENS
        assert "logits of 10% of the tokens within 0.0" in str(match)
        for wrong in (table + 1, np.where(other == table, table, np.nan)):
            with pytest.raises(ExportFailed, match="computes other logits"):
                compare.compare(right, self.subject(wrong), 12, 1e-5, share=0.1)

    def test_other_shapes(self):
        with pytest.raises(ExportFailed, match=r"shape \(2, 48, 5\), the model \(2"):
            compare.compare(
                self.subject(self.table()), self.subject(self.table()[:, :5]), 12, 1e-5
            )

    def test_other_tokens(self):
        def zeros(ids, n):
            return np.pad(ids, ((0, 0), (0, n)))

        table = self.table()
        table[:, 0] -= 9
        with pytest.raises(ExportFailed, match="chooses other tokens"):
            compare.compare(
                self.subject(table), self.subject(table, greedy=zeros), 12, 1e-5
            )

    def test_shorter_text(self):
        table = self.table()
        right = self.subject(table)
        short = self.subject(table, greedy=lambda ids, n: right.greedy(ids, n)[:, :-2])
        with pytest.raises(ExportFailed, match="chooses other tokens"):
            compare.compare(right, short, 12, 1e-5)

    def test_a_tie_is_no_difference(self):
        table = np.zeros((4, 4))
        table[:, 1:3] = 1.0  # 1 and 2 are equally likely
        other = table.copy()
        other[:, 2] += 1e-7
        match = compare.compare(self.subject(table), self.subject(other), 4, 1e-5)
        assert match.tokens == 0

    def test_windows_are_looked_through(self):
        assert compare.probe_length(tiny_backbone("mistral", sliding_window=100)) == 116
        assert compare.probe_length(tiny_backbone("mistral", sliding_window=None)) == 48
        assert compare.probe_length(tiny_backbone("llama3")) == 48
        assert compare.probe_length(tiny_backbone("gpt2")) == 48
        with pytest.raises(ExportRefused, match="has 16 positions.* texts of 48"):
            compare.probe_length(tiny_backbone("gpt2", max_sequence_length=16))

    def test_a_model_of_images_is_refused(self):
        lm = types.SimpleNamespace(input=dict.fromkeys(["token_ids", "images"]))
        with pytest.raises(ExportRefused, match="this one takes 'images' too"):
            stock.check_text_alone(lm)
