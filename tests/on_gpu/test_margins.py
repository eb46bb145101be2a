"""A kernel that breaks the GPU, as it takes what lies beyond a tensor for indices."""

from tests.on_gpu.study.margins import sentence_of_test


def test_a_fresh_process_names_the_tensor() -> None:
    sentence = sentence_of_test("indices without a mask, int64")
    assert sentence.startswith("WrongResult: it reads past args[1]: as indices, what lies there breaks the GPU")
